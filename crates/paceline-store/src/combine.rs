//! Many callers, one visit: whoever comes first asks for all who came meanwhile.

use crate::{Admission, Ask, StoreError};
use paceline_core::{Cost, Scope};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::Thread;

/// Admissions that several threads ask for at the same time.
#[derive(Debug, Default)]
pub(crate) struct Combiner(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// Somebody is visiting the store.
    busy: bool,
    asks: Vec<Arc<Asked>>,
}

/// What somebody asked for.
#[derive(Debug)]
struct Asked {
    scope: Scope<'static>,
    cost: Cost,
    thread: Thread,
    answer: Mutex<Answer>,
}

#[derive(Debug, Default)]
enum Answer {
    #[default]
    Waiting,
    /// The one before is done: it is this one's turn to visit, for itself and all behind it.
    Lead,
    Done(Result<Admission, StoreError>),
}

type Answers = Result<Vec<Option<Admission>>, StoreError>;

impl Combiner {
    /// Admits one call. `visit` asks the store for several at once, in order.
    pub(crate) fn admit(
        &self,
        ask: Ask<'_>,
        visit: impl Fn(&[Ask<'_>]) -> Answers,
    ) -> Result<Admission, StoreError> {
        let mut queue = self.0.lock();
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            let _next = Next(self);
            return one(&visit, ask);
        }
        let asked = Arc::new(Asked {
            scope: ask.scope.clone().into_owned(),
            cost: ask.cost.clone(),
            thread: std::thread::current(),
            answer: Mutex::default(),
        });
        queue.asks.push(Arc::clone(&asked));
        drop(queue);
        loop {
            match std::mem::take(&mut *asked.answer.lock()) {
                Answer::Waiting => {}
                Answer::Lead => break,
                Answer::Done(answer) => return answer,
            }
            std::thread::park();
        }
        let _next = Next(self);
        let all = std::mem::take(&mut self.0.lock().asks);
        let asks: Vec<_> = all.iter().map(|it| Ask { scope: &it.scope, cost: &it.cost }).collect();
        let mut mine = None;
        for (other, answer) in all.iter().zip(each(&visit, &asks)) {
            if Arc::ptr_eq(other, &asked) {
                mine = Some(answer);
            } else {
                *other.answer.lock() = Answer::Done(answer);
                other.thread.unpark();
            }
        }
        mine.unwrap_or_else(|| one(&visit, ask))
    }
}

/// Lets the next one visit, whatever became of this visit.
struct Next<'a>(&'a Combiner);

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.0.lock();
        match queue.asks.first() {
            Some(next) => {
                *next.answer.lock() = Answer::Lead;
                next.thread.unpark();
            }
            None => queue.busy = false,
        }
    }
}

/// An answer for each: what was left undecided behind others is asked for on its own.
fn each(
    visit: &impl Fn(&[Ask<'_>]) -> Answers,
    asks: &[Ask<'_>],
) -> Vec<Result<Admission, StoreError>> {
    match visit(asks) {
        Ok(answers) => {
            let answer = |(ask, answer): (&Ask<'_>, Option<Admission>)| match answer {
                Some(admission) => Ok(admission),
                None => one(visit, *ask),
            };
            asks.iter().zip(answers).map(answer).collect()
        }
        Err(error) => asks.iter().map(|_| Err(error.clone())).collect(),
    }
}

fn one(visit: &impl Fn(&[Ask<'_>]) -> Answers, ask: Ask<'_>) -> Result<Admission, StoreError> {
    let answer = visit(&[ask])?.pop().flatten();
    answer.ok_or_else(|| StoreError::new("the store gave no answer"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grant, Key, Place};
    use paceline_core::Tick;
    use paceline_core::state::Receipt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn rule_32_those_who_come_meanwhile_share_a_visit_and_each_gets_an_answer() {
        let (combiner, visits) = (Combiner::default(), AtomicUsize::new(0));
        let visit = |asks: &[Ask<'_>]| {
            visits.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(1));
            let grant = |ask: &Ask<'_>| {
                let place = Place::Key(Key::new(ask.scope.key()));
                let receipt = Receipt::new(ask.cost.clone(), Tick::ZERO);
                Some(Admission::Granted(Grant::new(place, receipt)))
            };
            Ok(asks.iter().map(grant).collect())
        };
        let granted = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for i in 0..8 {
                let (combiner, granted) = (&combiner, &granted);
                threads.spawn(move || {
                    let name = format!("h{i}.example");
                    let scope = Scope::parse(&name).unwrap();
                    for _ in 0..10 {
                        let ask = Ask { scope: &scope, cost: &Cost::ONE };
                        let Ok(Admission::Granted(grant)) = combiner.admit(ask, visit) else {
                            panic!()
                        };
                        assert_eq!(grant.key().as_str(), name, "the answer was somebody else's");
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(granted.load(Ordering::Relaxed), 80);
        assert!(visits.load(Ordering::Relaxed) < 60, "{visits:?} visits for 80 calls");
    }
}
