//! `--storage`: where limits and buckets live, for every command that can share them.

use crate::Failure;
use clap::Args;
use paceline::{Error, Limiter, OnFailure, Storage, StoreError};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a person waits for a server: one that is far away may take longer than a worker would bear.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where limits and buckets live.
#[derive(Debug, Args)]
pub(crate) struct StorageArgs {
    /// Where limits are shared: sqlite:///limits.db on one machine, redis://host:6379/0 among many
    ///
    /// sqlite:///relative.db and sqlite:////absolute.db are files; redis://, rediss:// (TLS), unix://,
    /// redis+sentinel:// and redis+cluster:// are Redis or Valkey; memory is this process alone. A
    /// password belongs in PACELINE_STORAGE: others on the machine can read a command line.
    #[arg(long, value_name = "URL", env = "PACELINE_STORAGE", hide_env_values = true)]
    storage: Option<Place>,
}

/// The text of a storage, which may hold a password. It is read when it is opened: what the parser of
/// the command line says of a bad value repeats it.
#[derive(Clone)]
struct Place(String);

impl FromStr for Place {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place(..)")
    }
}

impl StorageArgs {
    /// What was asked for, else this process. A variable that is empty says nothing.
    pub(crate) fn or_memory(&self) -> &str {
        let named = self.storage.as_ref().filter(|place| !place.0.is_empty());
        named.map_or("memory", |place| &place.0)
    }

    /// The same, or what a configuration names where nothing is said here.
    pub(crate) fn or(self, configured: Option<&str>) -> Self {
        let named = self.storage.filter(|place| !place.0.is_empty());
        Self { storage: named.or_else(|| configured.map(|text| Place(text.to_owned()))) }
    }

    /// The shared store, made if need be.
    pub(crate) fn open(&self) -> Result<Limiter, Failure> {
        let storage = self.or_memory();
        if matches!(storage.parse().map_err(Error::from)?, Storage::Memory) {
            return Err("no shared storage is named; give --storage URL or set PACELINE_STORAGE, \
                 such as sqlite:///limits.db or redis://localhost:6379/0"
                .into());
        }
        // Whoever looks or changes something wants to know that it was done, and where.
        let builder = Limiter::builder().on_failure(OnFailure::Closed).notify(drop);
        Ok(builder.store_timeout(PATIENCE).open(storage)?)
    }

    /// The same for who only looks: a file that is not there is a mistake, and is not made.
    pub(crate) fn open_existing(&self) -> Result<Limiter, Failure> {
        match self.missing_file() {
            Some(path) => {
                let missing = format!("there is no file {path}; paceline set makes it");
                Err(Error::from(StoreError::new(missing)).into())
            }
            None => self.open(),
        }
    }

    /// What it is called where everybody may see it: without a password.
    pub(crate) fn shown(&self) -> String {
        let text = self.or_memory();
        match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
            _ => text.to_owned(),
        }
    }

    /// Whether there is a shared store that may hold something.
    pub(crate) fn may_hold(&self) -> bool {
        !matches!(self.or_memory().parse(), Ok(Storage::Memory)) && self.missing_file().is_none()
    }

    /// The file that would be made.
    fn missing_file(&self) -> Option<String> {
        match self.or_memory().parse() {
            Ok(Storage::Sqlite(path)) if !path.exists() => Some(path.display().to_string()),
            _ => None,
        }
    }
}
