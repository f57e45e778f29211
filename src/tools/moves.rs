//! The moves in effect at a commit, from its history.

use std::collections::HashMap;
use std::sync::Arc;

use crate::tools::measures::make_room;
use base::error::Fault;
use base::ids::Hash;
use darktable::state::{EditState, Module};
use engine::photo::{AppliedMove, Commit, MoveId, Operation};
use engine::vocabulary::{grey_card, same_place};

/// The moves whose white balance a measured one replaces.
const SHIFTS: [&str; 2] = ["warmth", "tint"];

/// The moves in effect at commits, oldest first, each with the state that its own commit made.
pub type KnownMoves = HashMap<Hash, Arc<Vec<(AppliedMove, Hash)>>>;

/// The moves between the baseline and a commit that are still in effect, oldest first: a reset or an abandonment ends
/// the walk, an attempt taken back is passed over, a module removed takes its earlier moves with it, and of the same
/// move on the same mask the last one counts. `read` gives the commits.
///
/// # Errors
/// Those of `read` and `state`.
pub fn moves_of(
    read: &dyn Fn(&Hash) -> Result<Commit, Fault>,
    commit: &Hash,
    baseline: &Hash,
    state: &dyn Fn(&Hash) -> Result<EditState, Fault>,
) -> Result<Vec<AppliedMove>, Fault> {
    known_moves_of(read, commit, baseline, state, &mut KnownMoves::new())
}

/// [`moves_of`], with what was found before: the walk ends at a commit that is known.
///
/// # Errors
/// Those of `read` and `state`.
pub(super) fn known_moves_of(
    read: &dyn Fn(&Hash) -> Result<Commit, Fault>,
    commit: &Hash,
    baseline: &Hash,
    state: &dyn Fn(&Hash) -> Result<EditState, Fault>,
    known: &mut KnownMoves,
) -> Result<Vec<AppliedMove>, Fault> {
    let mut walk = Walk { state, made: Vec::new(), removed: Vec::new() };
    let mut at = Some(commit.clone());
    while let Some(hash) = at.filter(|h| h != baseline) {
        if let Some(found) = known.get(&hash) {
            found.iter().rev().try_for_each(|(applied, after)| walk.pass(applied.clone(), after))?;
            break;
        }
        let commit = read(&hash)?;
        let parent = commit.parents.first().cloned();
        match &commit.op {
            Operation::Reset | Operation::Abandon | Operation::Ingest { .. } => break,
            Operation::Rollback { to } => {
                at = Some(to.clone());
                continue;
            }
            op => {
                let before = || parent.as_ref().map(|parent| state(&read(parent)?.state)).transpose();
                walk.take_back(op, &before)?;
            }
        }
        for applied in commit.op.moves().into_iter().rev() {
            walk.pass(applied, &commit.state)?;
        }
        at = parent;
    }
    walk.made.reverse();
    let moves = walk.made.iter().map(|(applied, _)| applied.clone()).collect();
    make_room(known);
    known.insert(commit.clone(), Arc::new(walk.made));
    Ok(moves)
}

/// What a later commit took back.
enum Removed {
    /// All of a module or of a move.
    All(String),
    /// A module's unmasked instance.
    Base(String),
    /// A move where it acts on the whole picture.
    Unmasked(String),
    /// One masked instance.
    Place(Module),
}

/// A walk from the latest commit to the first.
struct Walk<'a> {
    state: &'a dyn Fn(&Hash) -> Result<EditState, Fault>,
    /// What is in effect, the latest first.
    made: Vec<(AppliedMove, Hash)>,
    removed: Vec<Removed>,
}

impl Walk<'_> {
    /// Passes an operation that may take back what came before it; `before` gives the state until then.
    fn take_back(
        &mut self,
        op: &Operation,
        before: &dyn Fn() -> Result<Option<EditState>, Fault>,
    ) -> Result<(), Fault> {
        let whole = match op {
            Operation::RemoveModule { module, .. } => module == grey_card::MOVE,
            Operation::RemovePlaced { id, .. } => {
                MoveId::parse(id).is_some_and(|id| id.name == grey_card::MOVE)
            }
            _ => false,
        };
        self.removed.extend(SHIFTS.iter().filter(|_| whole).map(|name| Removed::Unmasked((*name).into())));
        match op {
            Operation::RemoveModule { instance: None, module } => {
                self.removed.push(Removed::All(module.clone()));
            }
            Operation::RemovePlaced { id, instance: 0, .. } => {
                self.removed.extend(MoveId::parse(id).map(|id| Removed::Unmasked(id.name)));
            }
            Operation::RemoveModule { instance: Some(0), module } => {
                self.removed.push(Removed::Base(module.clone()));
            }
            Operation::RemovePlaced { module, instance, .. }
            | Operation::RemoveModule { module, instance: Some(instance) }
            | Operation::ReplaceMask { was: instance, applied: AppliedMove { module, .. }, .. } => {
                let before = before()?;
                let module = before.as_ref().and_then(|before| before.module(module, *instance));
                self.removed.extend(module.cloned().map(Removed::Place));
            }
            _ => {}
        }
        Ok(())
    }

    /// Passes a move; its commit made the state `after`.
    fn pass(&mut self, applied: AppliedMove, after: &Hash) -> Result<(), Fault> {
        let mut gone = false;
        for removal in &self.removed {
            gone |= match removal {
                Removed::All(name) => *name == applied.module || *name == applied.name,
                Removed::Base(op) => *op == applied.module && applied.mask.is_none(),
                Removed::Unmasked(name) => *name == applied.name && applied.mask.is_none(),
                // Instances are renumbered as others come and go: what tells them apart is their place.
                Removed::Place(place) if place.op == applied.module && applied.mask.is_some() => {
                    let after = (self.state)(after)?;
                    let carrier = after.module(&applied.module, applied.instance);
                    carrier.is_some_and(|carrier| same_place(carrier, place))
                }
                Removed::Place(_) => false,
            };
        }
        let later = self.made.iter().any(|(m, _)| m.name == applied.name && m.mask == applied.mask);
        if applied.name == grey_card::MOVE {
            self.removed.extend(SHIFTS.map(|name| Removed::Unmasked(name.into())));
        }
        if !gone && !later {
            self.made.push((applied, after.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darktable::state::Params;

    /// A history of `n` commits by `dice`: moves with and without masks, modules taken out, grey cards, ways back.
    fn history(n: usize, mut dice: impl FnMut(usize) -> usize) -> Vec<(Hash, Commit, EditState)> {
        let mut made: Vec<(Hash, Commit, EditState)> = Vec::new();
        for at in 0..n {
            let (name, module) =
                [("exposure", "exposure"), ("warmth", "temperature"), (grey_card::MOVE, "temperature")]
                    [dice(3)];
            let masked = name == "exposure" && dice(2) == 0;
            let instance = if masked { 1 + u32::try_from(dice(2)).unwrap() } else { 0 };
            let applied = AppliedMove {
                instance,
                mask: masked.then(|| format!("place {instance}").into()),
                module: module.into(),
                name: name.into(),
                ..AppliedMove::default()
            };
            let id = format!("{name}#{instance}");
            let op = match dice(12) {
                0 => Operation::Reset,
                1 => Operation::Rollback {
                    to: made.get(dice(at.max(1))).map_or(Hash::of("-"), |it| it.0.clone()),
                },
                2 => Operation::RemoveModule { instance: None, module: module.into() },
                3 => Operation::RemoveModule { instance: Some(instance), module: module.into() },
                4 => Operation::RemovePlaced { id, instance, module: module.into() },
                _ => Operation::Apply(applied.clone()),
            };
            let mut state = made.last().map(|it| it.2.clone()).unwrap_or_default();
            if matches!(op, Operation::Apply(_)) && state.module(module, instance).is_none() {
                state.modules.push(Module {
                    blend: None,
                    enabled: true,
                    instance,
                    modversion: 1,
                    name: format!("{name} {instance}"),
                    op: module.into(),
                    params: Params::Opaque(String::new()),
                });
            }
            let commit = Commit {
                label: String::new(),
                op,
                parents: made.last().map(|it| it.0.clone()).into_iter().collect(),
                state: Hash::of(format!("state {at}")),
            };
            made.push((Hash::of(format!("commit {at}")), commit, state));
        }
        made
    }

    #[test]
    fn what_is_known_changes_no_walk() {
        let mut seed = 7_u64;
        let mut dice = move |sides: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % sides
        };
        let mut longest = 0;
        for _ in 0..200 {
            let made = history(40, &mut dice);
            let read = |hash: &Hash| Ok(made.iter().find(|it| it.0 == *hash).unwrap().1.clone());
            let state = |hash: &Hash| Ok(made.iter().find(|it| it.1.state == *hash).unwrap().2.clone());
            let baseline = made[0].0.clone();
            let mut known = KnownMoves::new();
            for (commit, ..) in &made {
                let afresh = moves_of(&read, commit, &baseline, &state).unwrap();
                assert_eq!(known_moves_of(&read, commit, &baseline, &state, &mut known).unwrap(), afresh);
                longest = longest.max(afresh.len());
            }
        }
        assert!(longest > 3, "the histories are too simple: {longest}");
    }
}
