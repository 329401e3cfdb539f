//! The output: one JSON line per request, whole lines only.

use super::input::Request;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// What became of one request.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    pub(super) id: Value,
    pub(super) line: u64,
    pub(super) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<Map<String, Value>>,
    pub(super) body: Option<Box<RawValue>>,
    pub(super) attempts: u32,
    /// Seconds spent waiting for limits, over all attempts.
    pub(super) waited: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl Record {
    /// A request without an answer yet.
    pub(super) fn of(request: &Request) -> Self {
        Self {
            id: request.id.clone(),
            line: request.line,
            status: None,
            headers: None,
            body: None,
            attempts: 0,
            waited: 0.0,
            error: None,
        }
    }

    /// Adds time waited, to the millisecond.
    pub(super) fn wait(&mut self, waited: Duration) {
        self.waited = ((self.waited + waited.as_secs_f64()) * 1e3).round() / 1e3;
    }

    pub(super) fn succeeded(&self) -> bool {
        succeeded(self.status, self.error.as_deref())
    }
}

/// A response body as JSON: itself when it is JSON, else its text.
pub(super) fn body_of(bytes: &[u8]) -> Option<Box<RawValue>> {
    if bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    let trimmed = text.trim();
    // A JSON body may be spread over lines; a record may not.
    let kept = match trimmed.contains(['\n', '\r']) {
        false => serde_json::from_str::<&RawValue>(trimmed).ok().map(ToOwned::to_owned),
        true => serde_json::from_str::<Value>(trimmed)
            .ok()
            .and_then(|value| serde_json::value::to_raw_value(&value).ok()),
    };
    kept.or_else(|| serde_json::value::to_raw_value(&text).ok())
}

/// Response headers as a JSON object; repeated ones are joined.
pub(super) fn headers_of(headers: &HeaderMap) -> Map<String, Value> {
    let mut object = Map::new();
    for name in headers.keys() {
        let values: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        object.insert(name.to_string(), Value::from(values.join(", ")));
    }
    object
}

/// Where records go.
pub(super) struct Output {
    sink: Box<dyn Write + Send>,
    /// Records that came before their turn, when the order of the input is kept.
    early: Option<BTreeMap<u64, Vec<u8>>>,
    /// Lines that will have no record, because they were bad, blank or done before.
    skipped: HashSet<u64>,
    next: u64,
}

impl Output {
    /// Writes to a file, or to standard output without one. What is in the file stays only if
    /// `resume`.
    pub(super) fn open(path: Option<&Path>, resume: bool, ordered: bool) -> io::Result<Self> {
        let sink: Box<dyn Write + Send> = match path {
            None => Box::new(io::stdout()),
            Some(path) => Box::new(
                OpenOptions::new()
                    .create(true)
                    .append(resume)
                    .write(true)
                    .truncate(!resume)
                    .open(path)?,
            ),
        };
        let early = ordered.then(BTreeMap::new);
        Ok(Self { sink, early, skipped: HashSet::new(), next: 1 })
    }

    /// Writes a record as one whole line, in one call, so that whatever kills us leaves at most
    /// the line in hand broken. Tells how many lines were done with.
    pub(super) fn write(&mut self, record: &Record) -> io::Result<usize> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let Some(early) = &mut self.early else {
            self.sink.write_all(&line)?;
            self.sink.flush()?;
            return Ok(1);
        };
        early.insert(record.line, line);
        self.catch_up()
    }

    /// A line of the input that will have no record.
    pub(super) fn skip(&mut self, line: u64) -> io::Result<usize> {
        if self.early.is_none() {
            return Ok(0);
        }
        self.skipped.insert(line);
        self.catch_up()
    }

    fn catch_up(&mut self) -> io::Result<usize> {
        let mut written = 0;
        while let Some(early) = &mut self.early {
            if let Some(line) = early.remove(&self.next) {
                self.sink.write_all(&line)?;
                written += 1;
            } else if !self.skipped.remove(&self.next) {
                break;
            }
            self.next += 1;
        }
        self.sink.flush()?;
        Ok(written)
    }

    /// Writes what still waits for a turn that will not come, because an earlier one was given up.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        for line in self.early.take().unwrap_or_default().into_values() {
            self.sink.write_all(&line)?;
        }
        self.sink.flush()
    }
}

/// What an output already holds.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// A bit for each line whose id is its number.
    lines: Vec<u64>,
    /// Hashes of all other ids.
    ids: HashSet<u64>,
    /// Records of requests that did not succeed.
    pub(super) failed: u64,
}

/// Lines that are remembered by a bit; 2^36 of them fill 8 GiB.
const MOST_LINES: u64 = 1 << 36;
/// How each record begins: what else an output ends with is not ours to cut off.
const OPENING: &[u8] = br#"{"id":"#;

#[derive(Deserialize)]
struct Written {
    id: Value,
    line: u64,
    status: Option<u16>,
    error: Option<String>,
}

impl Done {
    /// Reads an output and cuts off a line that was broken in the middle. With `again`, takes out
    /// the records of requests that did not succeed, so that they are sent once more.
    ///
    /// # Errors
    /// When the file cannot be read, or holds what no batch wrote; it is then left as it is.
    pub(super) fn read(path: &Path, again: bool) -> io::Result<Self> {
        let mut done = Self::default();
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(done),
            Err(error) => return Err(error),
        };
        let whole = done.read_lines(&file)?;
        file.set_len(whole)?;
        if again && done.failed > 0 {
            done = Self::default();
            done.keep_successes(&file, path)?;
        }
        Ok(done)
    }

    /// Reads whole lines; tells where the last of them ends.
    fn read_lines(&mut self, file: &File) -> io::Result<u64> {
        let mut reader = BufReader::new(file);
        let (mut whole, mut number, mut line) = (0, 0_u64, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            number += 1;
            let broken = line.last() != Some(&b'\n');
            if broken && (line.starts_with(OPENING) || OPENING.starts_with(&line)) {
                return Ok(whole);
            }
            self.add(&parse(&line, number)?);
            whole += read as u64;
        }
    }

    /// Replaces the file by one that holds only the records of requests that succeeded. Whatever
    /// kills us, one of the two is there.
    fn keep_successes(&mut self, file: &File, path: &Path) -> io::Result<()> {
        let beside = path.with_added_extension("kept");
        let mut kept = io::BufWriter::new(File::create(&beside)?);
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(0))?;
        let (mut number, mut line) = (0, Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            number += 1;
            let written = parse(&line, number)?;
            if written.succeeded() {
                self.add(&written);
                kept.write_all(&line)?;
            }
            line.clear();
        }
        kept.into_inner()?.sync_all()?;
        std::fs::rename(beside, path)
    }

    fn add(&mut self, written: &Written) {
        self.failed += u64::from(!written.succeeded());
        if written.id.as_u64() == Some(written.line) && written.line < MOST_LINES {
            let (word, bit) = place(written.line);
            if self.lines.len() <= word {
                self.lines.resize(word + 1, 0);
            }
            if let Some(word) = self.lines.get_mut(word) {
                *word |= bit;
            }
        } else {
            self.ids.insert(hash(&written.id));
        }
    }

    /// Whether the request was answered before.
    pub(super) fn has(&self, request: &Request) -> bool {
        if request.id.as_u64() == Some(request.line) && request.line < MOST_LINES {
            let (word, bit) = place(request.line);
            return self.lines.get(word).is_some_and(|word| word & bit != 0);
        }
        self.ids.contains(&hash(&request.id))
    }
}

impl Written {
    fn succeeded(&self) -> bool {
        succeeded(self.status, self.error.as_deref())
    }
}

fn parse(line: &[u8], number: u64) -> io::Result<Written> {
    serde_json::from_slice(line).map_err(|error| {
        let message = format!("line {number} is not a record of a batch: {error}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

fn succeeded(status: Option<u16>, error: Option<&str>) -> bool {
    error.is_none() && status.is_some_and(|status| (200..400).contains(&status))
}

fn place(line: u64) -> (usize, u64) {
    (usize::try_from(line / 64).unwrap_or(usize::MAX), 1 << (line % 64))
}

fn hash(id: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.to_string().hash(&mut hasher);
    hasher.finish()
}
