//! What is asked of a limiter.

use paceline_core::{Amount, Cost, Dimension, Error};
use std::time::Duration;

/// What most calls cost, in one place instead of on every stack.
pub(crate) static ONE: Cost = Cost::ONE;

/// One call: where it goes, what it spends, and how long it may wait.
///
/// ```
/// use paceline::Call;
/// use std::time::Duration;
///
/// let call = Call::to("https://api.example.com/chat")
///     .cost("tokens", 1_500.0)?
///     .max_wait(Duration::from_secs(30));
/// # Ok::<(), paceline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub(crate) endpoint: &'a str,
    pub(crate) cost: Cost,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) account: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// A call to a URL or host that spends one request and may wait for ever, unless the limiter
    /// says otherwise.
    #[must_use]
    pub const fn to(endpoint: &'a str) -> Self {
        Self { endpoint, cost: Cost::ONE, max_wait: None, account: None }
    }

    /// Spends `amount` units of `dimension`, beside its one request.
    ///
    /// # Errors
    /// [`Error::Dimension`] for a bad name, [`Error::Cost`] for a bad amount.
    pub fn cost(mut self, dimension: &str, amount: f64) -> Result<Self, Error> {
        self.cost.set(Dimension::new(dimension)?, Amount::from_f64(amount)?);
        Ok(self)
    }

    /// Spends exactly that.
    #[must_use]
    pub fn costing(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Counts for that account, apart from others at the same endpoint (rule 17). It is a name, such as
    /// `team-a`, and no secret: it is part of keys and messages.
    #[must_use]
    pub const fn account(mut self, account: &'a str) -> Self {
        self.account = Some(account);
        self
    }

    /// Waits at most that long, decided up front.
    #[must_use]
    pub const fn max_wait(mut self, max_wait: Duration) -> Self {
        self.max_wait = Some(max_wait);
        self
    }
}

impl<'a> From<&'a str> for Call<'a> {
    fn from(endpoint: &'a str) -> Self {
        Self::to(endpoint)
    }
}
