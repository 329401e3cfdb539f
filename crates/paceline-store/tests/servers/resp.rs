//! As much of Redis' protocol as a test needs to look after a server.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};

/// Sends one command and reads its reply as flat text: the elements of an array stand on lines of
/// their own, and nothing is `(nil)`.
pub(super) fn ask(stream: impl Read + Write, command: &[&str]) -> Result<String, String> {
    let mut request = format!("*{}\r\n", command.len());
    for part in command {
        let _ = write!(request, "${}\r\n{part}\r\n", part.len());
    }
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    read(&mut stream)
}

fn read(stream: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    stream.read_line(&mut line).map_err(|error| error.to_string())?;
    let line = line.strip_suffix("\r\n").ok_or("the connection was closed")?;
    let (kind, rest) = line.split_at(1);
    match (kind, rest) {
        ("+" | ":", text) => Ok(text.to_owned()),
        ("-", error) => Err(error.to_owned()),
        ("$" | "*", "-1") => Ok("(nil)".to_owned()),
        ("$", length) => {
            let mut bytes = vec![0; count(length)? + "\r\n".len()];
            stream.read_exact(&mut bytes).map_err(|error| error.to_string())?;
            bytes.truncate(bytes.len() - "\r\n".len());
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        ("*", length) => {
            let parts: Result<Vec<_>, _> = (0..count(length)?).map(|_| read(stream)).collect();
            Ok(parts?.join("\n"))
        }
        _ => Err(format!("a reply begins with {kind:?}")),
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("a reply has the length {text:?}"))
}
