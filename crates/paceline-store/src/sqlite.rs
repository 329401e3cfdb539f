//! One file for all processes of a machine.
//!
//! Every visit is one transaction that runs the engine on the states it needs, so a process that is
//! killed at any point leaves either all of a charge behind or nothing. States are stored relative to
//! the wall clock at which they were written: a clock that is set back stops nothing, and one that is
//! set forward fills the buckets at most.
//!
//! SQLite lets those who find the file busy sleep and try again, which starves some of them for half a
//! second. So writers stand in a [`Queue`] outside of it, and never find the file busy.

pub(crate) mod queue;

use crate::clock::Epoch;
use crate::combine::Combiner;
use crate::process::{self, Close, PerProcess};
use crate::tally::{day_of, oldest};
use crate::template::Templates;
use crate::view::Views;
use crate::{Admission, Ask, Clock, Day, Grant, Key, Place, Snapshot, Store, StoreError, Tally};
use paceline_core::record::Record;
use paceline_core::state::Receipt;
use paceline_core::{Cost, Limit, Policy, Reading, Scope, ScopeState, Tick, Verdict};
use parking_lot::Mutex;
use queue::Queue;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The layout of the file. Later releases read this one; the first had no books.
const SCHEMA: i64 = 2;
/// What is added to a file of an earlier layout, or to an empty one.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS scopes (
        key TEXT PRIMARY KEY, expires INTEGER NOT NULL, state BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tallies (
        day TEXT NOT NULL, key TEXT NOT NULL,
        sent INTEGER NOT NULL, waited INTEGER NOT NULL, delayed INTEGER NOT NULL,
        refused INTEGER NOT NULL, rejected INTEGER NOT NULL, failed INTEGER NOT NULL,
        cached INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
        micro_usd INTEGER NOT NULL,
        PRIMARY KEY (day, key)
    ) WITHOUT ROWID;
";
/// "PACE": tells a file of ours from any other.
const APPLICATION: i64 = 0x5041_4345;
/// Visits between two sweeps of what is no longer needed.
const SWEEP: u32 = 4_096;

/// The statement that adds to the books.
static ADD: LazyLock<String> = LazyLock::new(|| {
    let names = Tally::NAMES;
    let add = names.map(|name| format!("{name} = min({name} + excluded.{name}, {})", Tally::MOST));
    let (columns, values, add) = (names.join(", "), "?, ".repeat(names.len() + 1), add.join(", "));
    format!(
        "INSERT INTO tallies (day, key, {columns}) VALUES ({values}?) \
         ON CONFLICT (day, key) DO UPDATE SET {add}"
    )
});
/// The one that reads them.
static READ: LazyLock<String> = LazyLock::new(|| {
    let columns = Tally::NAMES.join(", ");
    format!("SELECT day, key, {columns} FROM tallies WHERE day >= ?1 ORDER BY day, key")
});

/// Limits and buckets in an SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    templates: Templates,
    clock: Clock,
    epoch: Epoch,
    here: PerProcess<Here>,
}

/// What one process has of it.
#[derive(Debug, Default)]
struct Here {
    /// Closed while the process forks.
    file: Mutex<Option<File>>,
    combiner: Combiner,
    views: Views,
    /// Requests that are over, to be told at the next visit.
    closed: Mutex<Vec<(Key, Receipt)>>,
}

#[derive(Debug)]
struct File {
    connection: Connection,
    queue: Arc<Queue>,
    identity: (u64, u64),
    until_sweep: u32,
}

/// One visit: the transaction, its instant, and the states that it has touched.
struct Visit<'a> {
    connection: &'a Connection,
    templates: &'a Templates,
    /// Now in this process's ticks, and in microseconds of the wall clock.
    now: Tick,
    at: u64,
    loaded: BTreeMap<String, Loaded>,
}

struct Loaded {
    state: Option<ScopeState>,
    changed: bool,
}

impl Sqlite {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be opened, or is no file of ours.
    pub fn open(path: &Path, policy: Policy) -> Result<Self, StoreError> {
        let store = Self::with_clock(path, policy, Clock::real());
        store.ping()?;
        Ok(store)
    }

    /// A store that opens its file when it is first visited, on a clock of the caller's.
    #[must_use]
    pub fn with_clock(path: &Path, policy: Policy, clock: impl Into<Clock>) -> Self {
        // A process that changes its directory stays with its file.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path,
            templates: Templates::new(policy),
            clock: clock.into(),
            epoch: Epoch::default(),
            here: PerProcess::default(),
        }
    }

    fn here(&self) -> Arc<Here> {
        if let Some(here) = self.here.mine() {
            return here;
        }
        let here = self.here.get_or_default();
        process::close_at_forks(&here);
        here
    }

    /// Runs `step` in one transaction, and stores what it has changed.
    fn visit<R>(
        &self,
        step: impl FnOnce(&mut Visit<'_>) -> Result<R, Error>,
    ) -> Result<R, StoreError> {
        let _visit = process::Visit::begin();
        let here = self.here();
        let mut file = here.file.lock();
        // Somebody deleted it: what is written to the old one would be seen by nobody.
        let there = queue::identity(&self.path).ok();
        let file = match &mut *file {
            Some(file) if there == Some(file.identity) => file,
            stale => stale.insert(File::reopen(&self.path)?),
        };
        let closed = std::mem::take(&mut *here.closed.lock());
        let turn = file.queue.turn();
        let visited = self.transact(&file.connection, &here.views, &closed, step);
        if visited.is_err() {
            // Whatever went wrong, nothing of it stays.
            drop(file.connection.execute_batch("ROLLBACK"));
            here.closed.lock().extend(closed);
        } else if file.until_sweep == 0 {
            file.until_sweep = SWEEP;
            drop(sweep(&file.connection, self.clock.wall_micros()));
        } else {
            file.until_sweep -= 1;
        }
        drop(turn);
        visited.map_err(|error| match error {
            Error::Unreadable(error) => StoreError::of_data(error),
            error => StoreError::new(error),
        })
    }

    fn transact<R>(
        &self,
        connection: &Connection,
        views: &Views,
        closed: &[(Key, Receipt)],
        step: impl FnOnce(&mut Visit<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // The clock is read inside, so that no two visits see it in the wrong order.
        let at = self.clock.wall_micros();
        let mut visit = Visit {
            connection,
            templates: &self.templates,
            now: self.epoch.tick(at),
            at,
            loaded: BTreeMap::new(),
        };
        for (key, receipt) in closed {
            let now = visit.now;
            // What cannot be read there is for those to hear who ask for it.
            if let Ok(Some(state)) = visit.known(key.as_str()) {
                state.close(receipt, now);
            }
        }
        let result = step(&mut visit)?;
        visit.store()?;
        connection.prepare_cached("COMMIT")?.execute([])?;
        for (key, loaded) in visit.loaded {
            match loaded.state {
                Some(state) => views.see(&key, state),
                None => views.forget(Some(&key)),
            }
        }
        Ok(result)
    }

    fn now(&self) -> Tick {
        self.epoch.tick(self.clock.wall_micros())
    }
}

impl Visit<'_> {
    /// Reads the state of exactly that scope, if it was not read before.
    fn load(&mut self, key: &str) -> Result<&mut Loaded, Error> {
        // Twice looked up, because a borrow that is returned would last for the other case too.
        if !self.loaded.contains_key(key) {
            let read = "SELECT state FROM scopes WHERE key = ?1 AND expires > ?2";
            let mut read = self.connection.prepare_cached(read)?;
            let at = i64::try_from(self.at).unwrap_or(i64::MAX);
            let stored: Option<Vec<u8>> =
                read.query_row(params![key, at], |row| row.get(0)).optional()?;
            // What is no state of ours is begun anew.
            let record = stored.and_then(|bytes| rmp_serde::from_slice::<Record>(&bytes).ok());
            let loaded = match record {
                Some(record) => {
                    let elapsed = Duration::from_micros(self.at.saturating_sub(record.at));
                    let state = match record.state(self.now, elapsed) {
                        Err(error) if !error.is_of_later_release() => self.templates.declared(key),
                        state => Some(state?),
                    };
                    // A clock that was set back goes on from here.
                    Loaded { state, changed: self.at < record.at }
                }
                None => Loaded { state: self.templates.declared(key), changed: false },
            };
            self.loaded.insert(key.to_owned(), loaded);
        }
        self.loaded.get_mut(key).ok_or(Error::Lost)
    }

    /// The state of exactly that scope, if there is one, about to be changed.
    fn known(&mut self, key: &str) -> Result<Option<&mut ScopeState>, Error> {
        let loaded = self.load(key)?;
        loaded.changed |= loaded.state.is_some();
        Ok(loaded.state.as_mut())
    }

    /// The state of exactly that scope, made if need be.
    fn exactly(&mut self, key: &str) -> Result<&mut ScopeState, Error> {
        let policy = &self.templates.policy;
        let loaded = self.load(key)?;
        loaded.changed = true;
        Ok(loaded.state.get_or_insert_with(|| policy.fresh()))
    }

    /// The key of the scope that governs `scope`: the narrowest that decides anything, else the host
    /// where defaults apply.
    fn governing<'s>(&mut self, scope: &'s Scope<'_>) -> Result<Option<&'s str>, Error> {
        let now = self.now;
        for key in scope.candidates() {
            if self.load(key)?.state.as_ref().is_some_and(|state| state.governs(now)) {
                return Ok(Some(key));
            }
        }
        let host = scope.host();
        if !self.templates.policy.governs() {
            return Ok(None);
        }
        let policy = &self.templates.policy;
        self.load(host)?.state.get_or_insert_with(|| policy.fresh());
        Ok(Some(host))
    }

    /// Admits in the scope with that key, which is the one that governs.
    fn admit(&mut self, key: Option<&str>, ask: Ask<'_>) -> Result<Admission, Error> {
        let now = self.now;
        let Some(key) = key else {
            let receipt = Receipt::new(ask.cost.clone(), now);
            let place = Place::Key(Key::new(ask.scope.host()));
            return Ok(Admission::Granted(Grant::new(place, receipt)));
        };
        let loaded = self.load(key)?;
        let state = loaded.state.as_mut().ok_or(Error::Lost)?;
        Ok(match state.admit(ask.cost, now) {
            Ok(receipt) => {
                loaded.changed = true;
                Admission::Granted(Grant::new(Place::Key(Key::new(key)), receipt))
            }
            Err(wait) => Admission::Wait(Key::new(key), wait),
        })
    }

    /// The keys of all that is stored.
    fn keys(&self) -> Result<Vec<Key>, Error> {
        let at = i64::try_from(self.at).unwrap_or(i64::MAX);
        let read = "SELECT key FROM scopes WHERE expires > ?1 ORDER BY key";
        let mut read = self.connection.prepare_cached(read)?;
        let keys = read.query_map(params![at], |row| Ok(Key::new(&row.get::<_, String>(0)?)))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// Adds to the books of today, and drops the days that are too long ago.
    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), Error> {
        let today = day_of(self.at);
        let mut add = self.connection.prepare_cached(&ADD)?;
        for (key, tally) in entries {
            add.raw_bind_parameter(1, today.to_string())?;
            add.raw_bind_parameter(2, key.as_str())?;
            for (i, sum) in tally.numbers().into_iter().enumerate() {
                add.raw_bind_parameter(i + 3, sum.cast_signed())?;
            }
            add.raw_execute()?;
        }
        let drop = "DELETE FROM tallies WHERE day < ?1";
        self.connection.prepare_cached(drop)?.execute([oldest(today).to_string()])?;
        Ok(())
    }

    /// The books of all days that are kept.
    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, Error> {
        let mut read = self.connection.prepare_cached(&READ)?;
        let mut rows = read.query([oldest(day_of(self.at)).to_string()])?;
        let mut tallies = Vec::new();
        while let Some(row) = rows.next()? {
            let mut sums = [0; Tally::NAMES.len()];
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = u64::try_from(row.get::<_, i64>(i + 2)?).unwrap_or(0);
            }
            let key = Key::new(&row.get::<_, String>(1)?);
            // What is no day of ours is passed over.
            if let Ok(day) = row.get::<_, String>(0)?.parse() {
                tallies.push((key, day, Tally::from_numbers(sums)));
            }
        }
        Ok(tallies)
    }

    /// Writes what has changed.
    fn store(&self) -> Result<(), Error> {
        for (key, loaded) in self.loaded.iter().filter(|(_, loaded)| loaded.changed) {
            let Some(state) = &loaded.state else { continue };
            let kept = kept(state, self.now);
            if kept.is_zero() {
                self.connection
                    .prepare_cached("DELETE FROM scopes WHERE key = ?1")?
                    .execute(params![key])?;
                continue;
            }
            let bytes = rmp_serde::to_vec(&Record::of(state, self.now, self.at))?;
            let kept = u64::try_from(kept.as_micros()).unwrap_or(u64::MAX).saturating_add(1);
            let expires = i64::try_from(self.at.saturating_add(kept)).unwrap_or(i64::MAX);
            let write = "INSERT INTO scopes (key, expires, state) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (key) DO UPDATE SET expires = ?2, state = ?3";
            self.connection.prepare_cached(write)?.execute(params![key, expires, bytes])?;
        }
        Ok(())
    }
}

impl Close for Here {
    fn close(&self) {
        if let Some(mut file) = self.file.try_lock() {
            *file = None;
            Queue::close_all();
        }
    }
}

impl File {
    fn reopen(path: &Path) -> Result<Self, StoreError> {
        let shown = path.display();
        Self::open(path).map_err(|error| StoreError::new(format!("cannot open {shown}: {error}")))
    }

    fn open(path: &Path) -> Result<Self, Error> {
        // The journals of SQLite take over the mode of the file.
        queue::make_private(path)?;
        let mut connection = Connection::open(path)?;
        connection.busy_handler(Some(queue::patience))?;
        // Before anything is done to it.
        layout(&connection)?;
        let queue = Queue::of(path)?;
        let turn = queue.turn();
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A crash of the machine may lose the last charges, never the file.
        connection.pragma_update(None, "synchronous", "normal")?;
        if layout(&connection)? < SCHEMA {
            connection.execute_batch(&format!(
                "BEGIN IMMEDIATE;
                 {TABLES}
                 PRAGMA application_id = {APPLICATION};
                 PRAGMA user_version = {SCHEMA};
                 COMMIT"
            ))?;
        }
        drop(turn);
        Ok(Self { connection, queue, identity: queue::identity(path)?, until_sweep: SWEEP })
    }
}

/// The layout of a file, if it is one of ours; 0 when it is empty.
fn layout(connection: &Connection) -> Result<i64, Error> {
    // At one instant, for others may be about to make it.
    let _reading = connection.unchecked_transaction()?;
    let read = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let (application, schema): (i64, i64) = (read("application_id")?, read("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (application, schema) {
        (APPLICATION, known) if known <= SCHEMA => Ok(known),
        (APPLICATION, newer) => Err(Error::Newer(newer)),
        _ if tables > 0 => Err(Error::Foreign),
        _ => Ok(0),
    }
}

/// How long a state is stored if nobody comes; zero when it need not be stored at all. A limit that
/// somebody set is kept for a month of idleness, and for twelve of its windows.
fn kept(state: &ScopeState, now: Tick) -> Duration {
    const MONTH: Duration = Duration::from_secs(30 * 86_400);
    state.kept(now).unwrap_or_else(|| {
        let windows = state.status(now).limits.into_iter();
        let longest = windows.map(|level| level.limit.window.duration()).max();
        MONTH.max(longest.unwrap_or_default() * 12)
    })
}

/// Deletes what can no longer matter.
fn sweep(connection: &Connection, at: u64) -> Result<(), Error> {
    let at = i64::try_from(at).unwrap_or(i64::MAX);
    connection.prepare_cached("DELETE FROM scopes WHERE expires <= ?1")?.execute(params![at])?;
    Ok(())
}

/// What can go wrong with a file.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("a state cannot be stored: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("a stored state cannot be read: {0}")]
    Unreadable(#[from] paceline_core::record::Unreadable),
    #[error("it is an SQLite file of another program")]
    Foreign,
    #[error("it was written by a later release of paceline (layout {0}, this one knows {SCHEMA})")]
    Newer(i64),
    #[error("a state that was just read is gone")]
    Lost,
}

impl Store for Sqlite {
    fn admit(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Admission, StoreError> {
        self.here().combiner.admit(Ask { scope, cost }, |asks| self.admit_all(asks))
    }

    fn admit_all(&self, asks: &[Ask<'_>]) -> Result<Vec<Option<Admission>>, StoreError> {
        let answers = self.visit(|visit| {
            let mut full: Vec<Key> = Vec::new();
            let mut answers = Vec::with_capacity(asks.len());
            for ask in asks {
                let key = visit.governing(ask.scope)?;
                if key.is_some_and(|key| full.iter().any(|full| full.as_str() == key)) {
                    answers.push(None);
                    continue;
                }
                let admission = visit.admit(key, *ask)?;
                if let Admission::Wait(key, _) = &admission {
                    full.push(key.clone());
                }
                answers.push(Some(admission));
            }
            Ok(answers)
        })?;
        let here = self.here();
        for answer in &answers {
            if let Some(Admission::Granted(grant)) = answer {
                here.views.count(grant);
            }
        }
        Ok(answers)
    }

    fn charge(&self, scope: &Scope<'_>, cost: &Cost) -> Result<Verdict, StoreError> {
        self.visit(|visit| {
            let now = visit.now;
            let Some(key) = visit.governing(scope)? else { return Ok(Verdict::Granted) };
            let loaded = visit.load(key)?;
            let verdict = loaded.state.as_mut().ok_or(Error::Lost)?.charge(cost, now);
            loaded.changed |= verdict.is_granted();
            Ok(verdict)
        })
    }

    fn settle(&self, grant: &Grant, actual: &Cost) -> Result<(), StoreError> {
        self.visit(|visit| {
            let now = visit.now;
            if let Some(state) = visit.known(grant.key().as_str())? {
                state.settle(&grant.receipt, actual, now);
            }
            Ok(())
        })
    }

    fn close(&self, grant: &Grant) -> Result<bool, StoreError> {
        let here = self.here();
        let awaited = here.views.of(grant.key(), ScopeState::is_awaited).unwrap_or(false);
        here.closed.lock().push((grant.key().clone(), grant.receipt.clone()));
        if awaited {
            self.visit(|_| Ok(()))?;
        }
        Ok(awaited)
    }

    fn give_back(&self, grant: &Grant) -> Result<(), StoreError> {
        self.visit(|visit| {
            let now = visit.now;
            if let Some(state) = visit.known(grant.key().as_str())? {
                state.give_back(&grant.receipt, now);
            }
            Ok(())
        })
    }

    fn observe(&self, grant: &Grant, reading: &Reading) -> Result<bool, StoreError> {
        let here = self.here();
        let (policy, now) = (&self.templates.policy, self.now());
        let expected =
            |state: &ScopeState| state.teaches_nothing(&grant.receipt, reading, policy, now);
        if here.views.of(grant.key(), expected).unwrap_or_else(|| reading.is_silent()) {
            return self.close(grant);
        }
        self.visit(|visit| {
            let (now, policy) = (visit.now, &visit.templates.policy);
            let receipt = match visit.load(grant.key().as_str())?.state {
                Some(_) => grant.receipt.clone(),
                // What was granted there is not counted here: the scope is new, or was forgotten.
                None => Receipt::new(grant.receipt.cost.clone(), grant.receipt.at),
            };
            Ok(visit.exactly(grant.key().as_str())?.observe(&receipt, reading, policy, now))
        })
    }

    fn set_limit(&self, scope: &Scope<'_>, limit: Limit) -> Result<(), StoreError> {
        self.templates.declare(scope.key(), limit.clone());
        self.visit(|visit| {
            let now = visit.now;
            visit.exactly(scope.key())?.set_limit(limit, now);
            Ok(())
        })
    }

    fn spend(&self, scope: &Scope<'_>, cost: &Cost) -> Result<(), StoreError> {
        self.visit(|visit| {
            let now = visit.now;
            let Some(key) = visit.governing(scope)? else { return Ok(()) };
            if let Some(state) = visit.known(key)? {
                state.spend_left(cost, now);
            }
            Ok(())
        })
    }

    fn clear(&self, scope: Option<&Scope<'_>>) -> Result<usize, StoreError> {
        let goes = |key: &str| scope.is_none_or(|scope| scope.covers(key));
        self.templates.forget(goes);
        self.here().views.forget(None);
        self.visit(|visit| {
            let keys = visit.keys()?;
            let gone: Vec<_> = keys.iter().map(Key::as_str).filter(|key| goes(key)).collect();
            for key in &gone {
                let delete = "DELETE FROM scopes WHERE key = ?1";
                visit.connection.prepare_cached(delete)?.execute(params![key])?;
                // What was told of it in this very visit goes, too.
                visit.loaded.remove(*key);
            }
            Ok(gone.len())
        })
    }

    fn snapshot(&self, scope: &Scope<'_>) -> Result<Option<Snapshot>, StoreError> {
        self.visit(|visit| {
            let Some(key) = visit.governing(scope)? else { return Ok(None) };
            let now = visit.now;
            let state = visit.load(key)?.state.clone().ok_or(Error::Lost)?;
            Ok(Some((Key::new(key), state, now)))
        })
    }

    fn keys(&self) -> Result<Vec<Key>, StoreError> {
        self.visit(|visit| visit.keys())
    }

    fn count(&self, entries: &[(Key, Tally)]) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.visit(|visit| visit.count(entries))
    }

    fn tallies(&self) -> Result<Vec<(Key, Day, Tally)>, StoreError> {
        self.visit(|visit| visit.tallies())
    }

    fn view(&self, scope: &Scope<'_>) -> Option<Snapshot> {
        self.here().views.find(scope, self.now())
    }

    fn share(&self, key: &Key) -> u32 {
        self.here().views.share(key)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.visit(|_| Ok(()))
    }

    fn flush(&self) -> Result<(), StoreError> {
        if self.here.mine().is_none_or(|here| here.closed.lock().is_empty()) {
            return Ok(());
        }
        self.visit(|_| Ok(()))
    }
}
