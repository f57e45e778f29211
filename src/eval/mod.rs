//! Is this prompt better? Frozen tasks, and what a session on one of them is worth in numbers.
//!
//! A [`scenario`] is one task: a raw, or the [`recipe`] of one, a brief, a budget, and what is expected of a session. A
//! [`golden`] set is a folder of scenarios that has been shipped and no longer changes. [`metrics`] look at a
//! finished session and say how it did; [`draft`] makes a scenario of an edit. [`baselines`] are the two
//! sessions that every other lies between: the one that does nothing, and the one that knows the answer.
//!
//! A [`plan`] says which [`cells`] a [`run`] has, each an ordinary session, recorded in a [`manifest`]; [`compare`]
//! tells two of its arms apart, as far as [`stats`] allow; [`report`] shows it all on one page. Its sessions run
//! freely or as a protocol says: [`steering`]; and on this machine, or on [`many`].

pub mod agreement;
pub mod baselines;
pub mod cells;
pub mod compare;
pub mod context;
pub mod draft;
pub mod file;
pub mod golden;
pub mod history;
pub mod judge;
pub mod manifest;
pub mod many;
pub mod metrics;
pub mod plan;
pub mod recipe;
pub mod report;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod steering;
