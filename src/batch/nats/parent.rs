//! The ledger of a batch that many machines share: one key, changed by compare-and-swap.
//!
//! A job reserves the most that its session may spend when it is first claimed, and keeps that until it is over,
//! through every claim: what is cut goes on as the same session. So what a vanished machine was given is charged in full
//! until the transcript says what was spent. A cell of an evaluation, which may begin another session where one failed,
//! reserves that one too before it begins.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use base::ids::Hash;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};
use crate::budget::{Amounts, Budget, Ledger, Reserve};

/// How often the pause between two tries to change a ledger is doubled.
const MOST_DOUBLED: u32 = 5;

/// What a batch has spent and reserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parent {
    /// What jobs that are over have spent.
    pub settled: Amounts,
    /// What each job that was claimed and is not over may spend.
    pub reserved: BTreeMap<Hash, Reservation>,
    /// The jobs that are settled. A worker that was stopped for a while does not know of it, and would reserve anew.
    #[serde(default)]
    pub over: Places,
}

/// Places of jobs in their batch, a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Places(Vec<u32>);

impl Places {
    fn has(&self, place: usize) -> bool {
        self.0.get(place / 32).is_some_and(|bits| bits >> (place % 32) & 1 == 1)
    }

    fn add(&mut self, place: usize) {
        if self.0.len() <= place / 32 {
            self.0.resize(place / 32 + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(place / 32) {
            *bits |= 1 << (place % 32);
        }
    }
}

/// What a job may spend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    /// The budget of its session.
    pub budget: Budget,
    /// The most that this is, of what the batch counts.
    pub most: Amounts,
}

impl Parent {
    /// The same as a ledger under the caps of the batch.
    pub fn ledger(&self, caps: Budget) -> Ledger {
        let mut ledger = Ledger::new(caps, Reserve::default());
        ledger.reserve(u64::MAX, self.settled);
        ledger.settle(u64::MAX, self.settled);
        for (number, reservation) in (0..).zip(self.reserved.values()) {
            ledger.reserve(number, reservation.most);
        }
        ledger
    }
}

/// What came of a reservation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reserved {
    /// The job has one, now or from before: the budget of its session.
    Has(Budget),
    /// What others reserved may come back.
    Wait,
    /// It will never fit: why.
    Never(String),
    /// The job is settled.
    Over,
}

impl Store {
    /// The ledger of a batch.
    pub(crate) fn parent(&self, batch: &str) -> Result<Parent, StoreError> {
        Ok(self.get(&key(batch))?.map(|stored| stored.value).unwrap_or_default())
    }

    /// Makes the ledger of a batch, if it has none.
    pub(crate) fn make_parent(&self, batch: &str) -> Result<(), StoreError> {
        self.create(&key(batch), &Parent::default()).map(drop)
    }

    /// Deletes the ledger of a batch.
    pub(crate) fn forget_parent(&self, batch: &str) -> Result<(), StoreError> {
        self.delete(&key(batch))
    }

    /// Reserves what `decide` says, by the ledger as it is, for a job that has nothing reserved and is not settled.
    pub(crate) fn reserve(
        &self,
        batch: &str,
        (job, place): (&Hash, usize),
        caps: &Budget,
        decide: impl Fn(&Ledger) -> Result<Reservation, String>,
    ) -> Result<Reserved, StoreError> {
        self.changed(batch, |parent| {
            if parent.over.has(place) {
                return Err(Reserved::Over);
            }
            if let Some(kept) = parent.reserved.get(job) {
                return Err(Reserved::Has(kept.budget.clone()));
            }
            let ledger = parent.ledger(caps.clone());
            match decide(&ledger) {
                Ok(wanted) if ledger.admit(&wanted.most, Duration::ZERO).is_ok() => {
                    let budget = wanted.budget.clone();
                    parent.reserved.insert(job.clone(), wanted);
                    Ok(Reserved::Has(budget))
                }
                _ if !parent.reserved.is_empty() => Err(Reserved::Wait),
                Ok(_) => Err(Reserved::Never("the budget of the batch has nothing left for it".into())),
                Err(why) => Err(Reserved::Never(why)),
            }
        })
    }

    /// Raises what a job has reserved to at least `most`; false if the batch has not that much left.
    pub(crate) fn raise(
        &self,
        batch: &str,
        job: &Hash,
        caps: &Budget,
        most: Amounts,
    ) -> Result<bool, StoreError> {
        self.changed(batch, |parent| {
            let ledger = parent.ledger(caps.clone());
            let Some(kept) = parent.reserved.get_mut(job) else { return Err(false) };
            let more = most.minus(kept.most);
            if more == Amounts::default() {
                return Err(true);
            }
            if ledger.admit(&more, Duration::ZERO).is_err() {
                return Err(false);
            }
            kept.most = kept.most.plus(more);
            Ok(true)
        })
    }

    /// Settles a job that is over to what it spent; a second time does nothing.
    pub(crate) fn settle(
        &self,
        batch: &str,
        (job, place): (&Hash, usize),
        spent: Amounts,
    ) -> Result<(), StoreError> {
        let first = self.changed(batch, |parent| {
            if parent.over.has(place) {
                return Err(false);
            }
            parent.reserved.remove(job);
            parent.settled = parent.settled.plus(spent);
            parent.over.add(place);
            Ok(true)
        })?;
        if first {
            crate::traces::metrics::settled(spent);
        }
        Ok(())
    }

    /// Changes the ledger until nobody else has changed it meanwhile; an `Err` of `change` leaves it as it is.
    fn changed<T>(&self, batch: &str, change: impl Fn(&mut Parent) -> Result<T, T>) -> Result<T, StoreError> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let round = Instant::now();
            let Some(stored) = self.get::<Parent>(&key(batch))? else {
                return Err(self.damaged(format!("the ledger of the batch {batch}"), "it is gone"));
            };
            let mut parent = stored.value;
            match change(&mut parent) {
                Err(unchanged) => return Ok(unchanged),
                Ok(changed) => {
                    if self.swap(&key(batch), &parent, stored.revision)? {
                        return Ok(changed);
                    }
                }
            }
            if began.elapsed() > super::PATIENCE {
                return Err(self.other("change the ledger", "others change it all the time"));
            }
            // Many at once would only be in each other's way: each waits by chance, as long as a try took or longer
            // each time.
            tries += 1;
            let chance = f64::from(RandomState::new().hash_one(tries) as u32) / f64::from(u32::MAX);
            std::thread::sleep(round.elapsed().mul_f64(chance * f64::from(1 << tries.min(MOST_DOUBLED))));
        }
    }
}

fn key(batch: &str) -> String {
    format!("ledger.{batch}")
}
