//! Pacing of LLM calls: which limits a model has, what a call may spend, and what it did spend (rules 16, 27
//! and 30). Whoever sends the calls, in whatever language, asks here before and tells afterwards.

use crate::{Error, Limiter, Permit, Refused};
use arc_swap::ArcSwap;
use paceline_core::llm::{Calibration, Price, Prompt, Request, Rule, Rules, Usage, family};
use paceline_core::{Amount, Cause, Cost, Dimension, Limit, Scope, Window};
use paceline_store::{Answer, Tally};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Rules, prices and budgets for the models of a limiter; cheap to clone, and clones share everything.
///
/// ```
/// use paceline::llm::{Request, Rule, Usage};
/// use paceline::{Call, Guard, Limiter};
///
/// let guard = Guard::new(Limiter::builder().build());
/// guard.set_rule("gpt-4o", None, Rule { tokens: Some(90_000), ..Rule::default() })?;
///
/// let body = br#"{"model": "gpt-4o", "max_tokens": 500, "messages": [{"role": "user", "content": "Hi!"}]}"#;
/// let request = Request::read(body).unwrap();
/// let call = guard.call("openai", "openai", "gpt-4o", Some(&request))?;
/// let mut permit = guard.limiter().acquire_blocking(Call::to(call.scope()).costing(call.cost()))?;
/// // Send it, hand its answer to `permit.observe`, and settle for what it used.
/// let usage = Usage { input: 9, output: 12, ..Usage::default() };
/// guard.settle(&call, &mut permit, [], usage)?;
/// # Ok::<(), paceline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Guard {
    limiter: Limiter,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    settings: ArcSwap<Settings>,
    /// By provider and name.
    models: ArcSwap<HashMap<String, Arc<Model>>>,
    /// Whoever changes the settings, or puts them into the store.
    changing: Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct Settings {
    rules: Rules,
    /// By what they cover, as rules are.
    prices: BTreeMap<String, Price>,
    budgets: BTreeMap<String, Budget>,
}

/// So many dollars for all calls that it covers together.
#[derive(Debug, Clone)]
struct Budget {
    scope: String,
    limit: Limit,
}

/// A model at a provider, as the settings of the moment have it.
#[derive(Debug)]
struct Model {
    scope: String,
    name: String,
    /// The settings that its limits in the store follow.
    settings: Arc<Settings>,
    budgets: Vec<Budget>,
    price: Option<Price>,
    learned: Arc<Learned>,
}

/// What is known of a model from its calls, whatever the settings.
#[derive(Debug, Default)]
struct Learned {
    calibration: Mutex<Calibration>,
    reports: AtomicUsize,
    tally: Mutex<Tally>,
}

impl Learned {
    /// To learn costs more than all the rest of a call, and what is known of a model after this many reports
    /// changes slowly: from then on it learns from one in eight.
    const FIRST: usize = 64;

    fn learn(&self, prompt: &Prompt, usage: &Usage) {
        let before = self.reports.fetch_add(1, Ordering::Relaxed);
        if before < Self::FIRST || before.is_multiple_of(8) {
            self.calibration.lock().learn(prompt, usage);
        }
    }
}

/// How a provider counts tokens.
#[derive(Debug, Clone, Copy)]
struct Counting {
    /// It goes on counting what was reserved and not used.
    keeps_reservation: bool,
    /// What its cache served does not count.
    cached_is_free: bool,
}

impl Counting {
    /// OpenAI counts `max_tokens`, used or not: <https://platform.openai.com/docs/guides/rate-limits>.
    /// Anthropic takes back what was not used, and does not count what its cache served:
    /// <https://docs.anthropic.com/en/api/rate-limits>. Others are taken to do as OpenAI does, where
    /// their answers say what is left.
    fn of(api: &str) -> Self {
        let is_anthropic = api == "anthropic";
        Self { keeps_reservation: !is_anthropic, cached_is_free: is_anthropic }
    }
}

/// One call, before it is sent.
#[derive(Debug, Clone)]
pub struct LlmCall {
    model: Arc<Model>,
    counting: Counting,
    price: Option<Price>,
    prompt: Option<Prompt>,
    cost: Cost,
    usd: Amount,
}

impl Guard {
    /// A guard of the calls that a limiter paces. Nothing is limited but what is documented of providers.
    #[must_use]
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter, shared: Arc::default() }
    }

    /// The limiter beneath.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Sets the rule for a model: `gpt-4o`, `openai:*` or `*`, of one provider only if one is given. It
    /// replaces a rule that covers the same.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit or burst of 0 or beyond counting.
    pub fn set_rule(&self, model: &str, provider: Option<&str>, rule: Rule) -> Result<(), Error> {
        self.change(|settings| settings.rules.set(Rules::covered(model, provider), rule))?;
        Ok(())
    }

    /// Removes a rule, so that the next one that covers its models governs; tells whether there was one.
    pub fn remove_rule(&self, model: &str, provider: Option<&str>) -> bool {
        self.change(|settings| settings.rules.remove(&Rules::covered(model, provider)))
    }

    /// The rule that governs a model at a provider.
    #[must_use]
    pub fn rule(&self, provider: &str, model: &str) -> Rule {
        self.shared.settings.load().rules.find(provider, model).0
    }

    /// Sets what a model costs, in place of what is published.
    pub fn set_price(&self, model: &str, provider: Option<&str>, price: Price) {
        self.change(|settings| settings.prices.insert(Rules::covered(model, provider), price));
    }

    /// Lets all calls that a pattern covers together, `gpt-4o`, `openai:*` or `*`, spend at most so many
    /// whole dollars in any span of one window. `None` lifts it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a budget of 0 or beyond counting; [`Error::Unavailable`] when the store
    /// cannot be reached.
    pub fn set_budget(
        &self,
        model: &str,
        provider: Option<&str>,
        budget: Option<(u64, Window)>,
    ) -> Result<(), Error> {
        let covers = Rules::covered(model, provider);
        let (provider, model) = covers.split_once(':').unwrap_or(("*", &covers));
        let scope = Scope::model(provider, model).to_string();
        let Some((usd, window)) = budget else {
            self.change(|settings| settings.budgets.remove(&covers));
            return Ok(());
        };
        let limit = Limit::new("usd", usd, window)?.strict()?;
        self.limiter.set_limit(&scope, limit.clone())?;
        self.change(|settings| settings.budgets.insert(covers.clone(), Budget { scope, limit }));
        Ok(())
    }

    /// What became of calls in this process, by model.
    #[must_use]
    pub fn stats(&self) -> BTreeMap<String, Tally> {
        let models = self.shared.models.load();
        models.values().map(|model| (model.scope.clone(), *model.learned.tally.lock())).collect()
    }

    /// Notes what became of a call, here and in the books of the store.
    pub fn note(&self, call: &LlmCall, tally: &Tally) {
        self.note_of(&call.model, tally);
    }

    fn note_of(&self, model: &Model, tally: &Tally) {
        model.learned.tally.lock().add(tally);
        self.limiter.count_from_loop(&model.scope, *tally);
    }

    /// Notes that a call was answered from the cache: it took no permit (rule 28).
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn note_cached(&self, answer: &Answer) -> Result<(), Error> {
        let model = self.model(&answer.provider, &answer.model)?;
        self.note_of(&model, &Tally { cached: 1, ..Tally::default() });
        Ok(())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Settings) -> R) -> R {
        let _changing = self.shared.changing.lock();
        let mut settings = Settings::clone(&self.shared.settings.load());
        let changed = change(&mut settings);
        self.shared.settings.store(Arc::new(settings));
        changed
    }

    /// A call of a model at a provider: where it is counted, and the most that it can spend. `api` is the
    /// provider whose API it speaks, which others speak as well: how tokens are counted is part of it.
    /// `None` for a request that says nothing of tokens, such as an upload.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn call(
        &self,
        api: &str,
        provider: &str,
        model: &str,
        request: Option<&Request<'_>>,
    ) -> Result<LlmCall, Error> {
        let model = self.model(provider, model)?;
        let counting = Counting::of(api);
        // Whoever passes calls on takes what it pays, as a rule.
        let price = model.price.or_else(|| Price::published(api, &model.name));
        let Some(request) = request else {
            let (prompt, cost, usd) = (None, Cost::ONE, Amount::ZERO);
            return Ok(LlmCall { model, counting, price, prompt, cost, usd });
        };
        let (input, output) = {
            let calibration = model.learned.calibration.lock();
            (calibration.input(&request.prompt), calibration.output(request.output))
        };
        let usd = price.map_or(Amount::ZERO, |price| price.at_most(input, output));
        let cost = tokens(input, output);
        Ok(LlmCall { model, counting, price, prompt: Some(request.prompt), cost, usd })
    }

    /// The model, with its limits in the store as the settings have them.
    fn model(&self, provider: &str, name: &str) -> Result<Arc<Model>, Error> {
        let settings = self.shared.settings.load();
        let scope = Scope::model(provider, name);
        let known = self.shared.models.load().get(scope.key()).map(Arc::clone);
        match known {
            Some(model) if Arc::ptr_eq(&model.settings, &settings) => Ok(model),
            known => self.settle_in(provider, name, &scope, known),
        }
    }

    #[cold]
    fn settle_in(
        &self,
        provider: &str,
        name: &str,
        scope: &Scope<'_>,
        known: Option<Arc<Model>>,
    ) -> Result<Arc<Model>, Error> {
        let _changing = self.shared.changing.lock();
        let settings = self.shared.settings.load_full();
        let rule = |settings: &Settings| settings.rules.find(provider, name);
        let (now, origin) = rule(&settings);
        let before = known.as_ref().map(|model| rule(&model.settings));
        if before != Some((now, origin)) {
            // What is limited no longer can only be forgotten together with the rest.
            let is_less = before.is_some_and(|(before, _)| has_more(&before, &now));
            if is_less {
                self.limiter.clear(Some(&scope.to_string()))?;
            }
            for limit in now.limits(origin)? {
                self.limiter.set_limit(&scope.to_string(), limit)?;
            }
        }
        let covering = covering(provider, name);
        let own = covering.iter().find_map(|covers| settings.prices.get(covers).copied());
        let budgets = covering.iter().filter_map(|covers| settings.budgets.get(covers).cloned());
        let model = Arc::new(Model {
            scope: scope.to_string(),
            budgets: budgets.collect(),
            price: own.or_else(|| Price::published(provider, name)),
            name: name.to_owned(),
            learned: known.map(|it| Arc::clone(&it.learned)).unwrap_or_default(),
            settings,
        });
        self.shared.models.rcu(|models| {
            let mut models = HashMap::clone(models);
            models.insert(scope.key().to_owned(), Arc::clone(&model));
            models
        });
        Ok(model)
    }

    /// Corrects what a call reserved to what it used, as far as the provider does so itself. `budgets` are the
    /// permits for [`LlmCall::budgets`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the store cannot be reached.
    pub fn settle<'a>(
        &self,
        call: &LlmCall,
        permit: &mut Permit,
        budgets: impl IntoIterator<Item = &'a mut Permit>,
        usage: Usage,
    ) -> Result<(), Error> {
        let Some(prompt) = &call.prompt else { return Ok(()) };
        call.model.learned.learn(prompt, &usage);
        // Where the answer said what is left, it has counted in its own way.
        if !(call.counting.keeps_reservation && permit.is_told_of_tokens()) {
            let free = if call.counting.cached_is_free { usage.cached } else { 0 };
            permit.settle_to(&tokens(usage.input.saturating_sub(free), usage.output))?;
        }
        let spent = call.price.map_or(Amount::ZERO, |price| price.of(&usage));
        for budget in budgets {
            budget.settle_to(&usd(spent))?;
        }
        let (input_tokens, output_tokens) = (usage.input, usage.output);
        let micro_usd = spent.millionths();
        self.note(call, &Tally { input_tokens, output_tokens, micro_usd, ..Tally::default() });
        Ok(())
    }
}

impl LlmCall {
    /// Where it is counted: `openai:gpt-4o`.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.model.scope
    }

    /// What it may spend there: one request, and `tokens`, `input_tokens` and `output_tokens`, for whichever
    /// of them is limited.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost.clone()
    }

    /// The same for a prompt that somebody has counted.
    #[must_use]
    pub fn with_input(self, input: u64) -> Self {
        let output = Dimension::new("output_tokens").map_or(0, |it| self.cost.of(&it).whole());
        let usd = self.price.map_or(Amount::ZERO, |price| price.at_most(input, output));
        Self { cost: tokens(input, output), usd, ..self }
    }

    /// The scopes of the budgets that it is paid from, and what it may cost in each.
    ///
    /// # Errors
    /// [`Error::Refused`] when it alone could exceed one; [`Error::Unpriced`] when no price of its model is
    /// known.
    pub fn budgets(&self) -> Result<Vec<(&str, Cost)>, Error> {
        let model = &self.model;
        if self.price.is_none() && !model.budgets.is_empty() && self.prompt.is_some() {
            return Err(Error::Unpriced(model.scope.clone()));
        }
        let exceeds = |budget: &&Budget| self.usd > Amount::units(budget.limit.units);
        if let Some(budget) = model.budgets.iter().find(exceeds) {
            return Err(Error::Refused(Refused {
                scope: budget.scope.clone(),
                by: Cause::Limit(Arc::new(budget.limit.clone())),
                retry_after: Duration::MAX,
            }));
        }
        Ok(model.budgets.iter().map(|budget| (budget.scope.as_str(), usd(self.usd))).collect())
    }

    /// The same use, where its report did not come: the prompt as it was estimated, and as much of an answer
    /// as was seen.
    #[must_use]
    pub fn seen(&self, output: u64) -> Usage {
        let reserved = |name| Dimension::new(name).map_or(0, |it| self.cost.of(&it).whole());
        let output = output.min(reserved("output_tokens"));
        Usage { input: reserved("input_tokens"), output, ..Usage::default() }
    }
}

/// Whatever covers a model, the narrowest first.
fn covering(provider: &str, model: &str) -> Vec<String> {
    let names = std::iter::successors(Some(model), |name| family(name));
    let names = names.flat_map(|name| [format!("{provider}:{name}"), name.to_owned()]);
    names.chain([format!("{provider}:*"), "*".to_owned()]).collect()
}

/// Whether a rule limits what another does not.
fn has_more(rule: &Rule, other: &Rule) -> bool {
    let limited = |rule: &Rule| {
        [rule.requests, rule.tokens, rule.input_tokens, rule.output_tokens].map(|it| it.is_some())
    };
    limited(rule).into_iter().zip(limited(other)).any(|(here, there)| here && !there)
}

/// One request and its tokens.
fn tokens(input: u64, output: u64) -> Cost {
    thread_local!(static NAMES: [Dimension; 3] =
        ["tokens", "input_tokens", "output_tokens"].map(|name| Dimension::Named(name.into())));
    let mut cost = Cost::ONE;
    NAMES.with(|[total, prompt, answer]| {
        cost.set(total.clone(), Amount::units(input.saturating_add(output)));
        cost.set(prompt.clone(), Amount::units(input));
        cost.set(answer.clone(), Amount::units(output));
    });
    cost
}

/// Dollars, and no request.
fn usd(amount: Amount) -> Cost {
    let mut cost = Cost::NOTHING;
    cost.set(Dimension::Named("usd".into()), amount);
    cost
}
