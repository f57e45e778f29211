//! What a state does not say of itself and its history does: which masked instance is which placed move, and what
//! the white balance was before it was shifted.
//!
//! darktable's instance numbers follow the move and the mask, so that equal edits are equal states: they change as
//! other instances come and go. An id (`exposure#2`) is counted along the history instead. It stays with its instance,
//! through other values and another mask, and is not given again.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::photo::error::PhotoError;
use crate::photo::layers::LayerContext;
use crate::photo::objects::Commit;
use crate::photo::op::{AppliedMove, Operation};
use crate::photo::workspace::Workspace;
use crate::vocabulary::grey_card;
use crate::vocabulary::{
    Applied, ApplyRequest, MaskSpec, PhotoFacts, PlacedInstance, Selector, Vocabulary, VocabularyError,
    same_place,
};
use base::ids::Hash;
use darktable::order;
use darktable::state::{EditState, Module, Params};

/// darktable's module of the white balance.
const TEMPERATURE: &str = "temperature";

/// The id of a placed move: `exposure#2`. Number 0 is the instance without a mask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveId {
    /// The move.
    pub name: String,
    /// Its number among the placed moves of that name in this history, from 1.
    pub number: u32,
}

impl MoveId {
    /// Reads `NAME#NUMBER`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, number) = text.trim().split_once('#')?;
        let (name, number) = (name.trim_end(), number.trim_start());
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        (digits && !name.is_empty())
            .then(|| Self { name: name.to_owned(), number: number.parse().unwrap_or(u32::MAX) })
    }
}

impl fmt::Display for MoveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.number)
    }
}

/// A masked instance of an edit.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedMove {
    /// Its id.
    pub id: MoveId,
    /// The module's instance number in this state.
    pub instance: u32,
    /// The move with its mask and values as they were last given; `None` where the edit was not made of moves (an
    /// import, a style, edits of another photo) or by a look.
    pub applied: Option<AppliedMove>,
    /// Module, name and mask; the parameters are left out.
    place: Module,
}

impl PlacedMove {
    /// darktable's name of its module.
    pub fn module(&self) -> &str {
        &self.place.op
    }
}

/// What stands at as many commits is remembered. The next commit is found from the latest; another branch is walked
/// again.
const KNOWN: usize = 128;

/// What stands at a commit.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    moves: Arc<Vec<PlacedMove>>,
    /// White balance that no move sets which can be shifted: warmth and tint go from it.
    balance: Option<Arc<Module>>,
    /// The white balance as it is.
    present: Option<Module>,
    counts: BTreeMap<String, u32>,
    /// The states passed, for a way back to one.
    passed: Passed,
}

/// The states that a history has passed, the latest first. What stands at a commit shares it with what stands at the
/// commit before, and each pass what it has in common with the one before: a session may make thousands.
#[derive(Clone, Debug, Default)]
struct Passed(Option<Arc<Pass>>);

#[derive(Debug)]
struct Pass {
    state: Hash,
    moves: Arc<Vec<PlacedMove>>,
    balance: Option<Arc<Module>>,
    before: Passed,
}

impl Passed {
    /// The latest pass of `state`.
    fn at(&self, state: &Hash) -> Option<Arc<Pass>> {
        let mut passes = std::iter::successors(self.0.as_ref(), |pass| pass.before.0.as_ref());
        passes.find(|pass| pass.state == *state).cloned()
    }
}

impl Drop for Passed {
    /// One after the other: a drop within a drop for each state of a long history would overflow the stack.
    fn drop(&mut self) {
        let mut last = self.0.take();
        while let Some(mut pass) = last.and_then(Arc::into_inner) {
            last = pass.before.0.take();
        }
    }
}

impl Workspace {
    /// What stands at a commit, from its whole history by first parents. `known` holds what was found out before.
    ///
    /// # Errors
    /// [`PhotoError`], if an object behind the commit is missing or damaged.
    pub fn standing(
        &self,
        commit: &Hash,
        vocabulary: &Vocabulary,
        known: &mut HashMap<Hash, Standing>,
    ) -> Result<Standing, PhotoError> {
        let mut behind = Vec::new();
        let mut at = Some(commit.clone());
        let mut standing = Standing::default();
        while let Some(hash) = at {
            if let Some(found) = known.get(&hash) {
                standing = found.clone();
                break;
            }
            let found = self.commit(&hash)?;
            at = found.parents.first().cloned();
            behind.push(found);
        }
        let mut before: Option<Hash> = None;
        for found in behind.iter().rev() {
            if before.as_ref() != Some(&found.state) {
                standing.step(found, &self.state(&found.state)?, vocabulary);
                before = Some(found.state.clone());
            }
        }
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(commit.clone(), standing.clone());
        Ok(standing)
    }
}

impl Standing {
    /// Applies a commit.
    fn step(&mut self, commit: &Commit, state: &EditState, vocabulary: &Vocabulary) {
        let back = matches!(
            commit.op,
            Operation::Reset | Operation::Abandon | Operation::Rollback { .. } | Operation::Snapshot
        );
        match back.then(|| self.passed.at(&commit.state)).flatten() {
            Some(pass) => (self.moves, self.balance) = (pass.moves.clone(), pass.balance.clone()),
            None => {
                let moves = self.follow(&commit.op, state);
                if moves != *self.moves {
                    self.moves = Arc::new(moves);
                }
                self.balance_after(&commit.op, state, vocabulary);
            }
        }
        self.present = state.module(TEMPERATURE, 0).cloned();
        self.passed = Passed(Some(Arc::new(Pass {
            state: commit.state.clone(),
            moves: self.moves.clone(),
            balance: self.balance.clone(),
            before: std::mem::take(&mut self.passed),
        })));
    }

    /// The placed moves of `state`, which `op` made.
    fn follow(&mut self, op: &Operation, state: &EditState) -> Vec<PlacedMove> {
        let applied = op.moves();
        let of = |module: &Module| {
            applied
                .iter()
                .position(|a| a.mask.is_some() && a.module == module.op && a.instance == module.instance)
        };
        let mut modules: Vec<&Module> = state.modules.iter().filter(|m| m.instance > 0).collect();
        // Those of a batch are counted in its order.
        modules.sort_by_key(|module| (of(module).unwrap_or(usize::MAX), module.instance));
        let mut moves = Vec::new();
        for module in modules {
            let moved = match op {
                Operation::ReplaceMask { id, applied, .. } if of(module).is_some() => {
                    MoveId::parse(id).filter(|id| id.name == applied.name)
                }
                _ => None,
            };
            let taken = |one: &&PlacedMove| !moves.iter().any(|new: &PlacedMove| new.id == one.id);
            let mut free = self.moves.iter().filter(taken);
            let before = match &moved {
                Some(id) => free.find(|one| one.id == *id),
                // What a person made in darktable may be twice in one place.
                None => free
                    .filter(|one| same_place(&one.place, module))
                    .min_by_key(|one| one.instance != module.instance),
            };
            let given = of(module).and_then(|at| applied.get(at)).cloned();
            let id = before.map(|one| one.id.clone()).or(moved).unwrap_or_else(|| {
                let name = if is_name(&module.name) { &module.name } else { &module.op };
                let count = self.counts.entry(name.clone()).or_default();
                *count += 1;
                MoveId { name: name.clone(), number: *count }
            });
            moves.push(PlacedMove {
                applied: given.or_else(|| before.and_then(|one| one.applied.clone())),
                instance: module.instance,
                place: Module { params: Params::Opaque(String::new()), ..module.clone() },
                id,
            });
        }
        moves.sort_by(|a, b| a.id.cmp(&b.id));
        moves
    }

    fn balance_after(&mut self, op: &Operation, state: &EditState, vocabulary: &Vocabulary) {
        let whole = |module: &str| module == TEMPERATURE || module == grey_card::MOVE;
        let now = state.module(TEMPERATURE, 0);
        match op {
            _ if now != self.present.as_ref() && sets_balance(op, vocabulary) => {
                self.balance = now.cloned().map(Arc::new)
            }
            Operation::RemoveModule { module, .. } if whole(module) => self.balance = None,
            Operation::RemovePlaced { id, .. } if MoveId::parse(id).is_some_and(|id| whole(&id.name)) => {
                self.balance = None;
            }
            Operation::Ingest { .. } | Operation::ImportSidecar { .. } | Operation::Reset => {
                self.balance = None
            }
            _ => {}
        }
    }

    /// The placed moves, by id.
    pub fn moves(&self) -> &[PlacedMove] {
        &self.moves
    }

    /// The id of a masked module instance of the state.
    pub fn id_of(&self, module: &str, instance: u32) -> Option<&MoveId> {
        self.moves.iter().find(|one| one.place.op == module && one.instance == instance).map(|one| &one.id)
    }

    /// The id of a move that is in effect: number 0 without a mask; `None` for a masked look and for spots.
    pub fn id(&self, made: &AppliedMove) -> Option<MoveId> {
        if made.mask.is_none() {
            return (made.module != SPOTS_MODULE).then(|| MoveId { name: made.name.clone(), number: 0 });
        }
        let is = |one: &&PlacedMove| {
            one.applied.as_ref().is_some_and(|a| a.name == made.name && a.mask == made.mask)
        };
        self.moves.iter().find(is).map(|one| one.id.clone())
    }

    /// A move that is in effect, under a mask by its id: `exposure#2 ev=0.50 EV on sky`.
    pub fn words(&self, made: &AppliedMove) -> String {
        let words = made.to_string();
        match (self.id(made).filter(|id| id.number > 0), words.strip_prefix(made.name.as_str())) {
            (Some(id), Some(rest)) => format!("{id}{rest}"),
            _ => words,
        }
    }

    /// The ids of what `op` made, where `self` stands after it and `before` before it.
    pub fn made(&self, op: &Operation, before: &Self) -> Vec<MoveId> {
        let named: Vec<MoveId> = op.moves().iter().filter_map(|made| self.id(made)).collect();
        if !named.is_empty() {
            return named;
        }
        self.moves.iter().map(|one| one.id.clone()).filter(|id| !before.has(id)).collect()
    }

    /// Where one of `made` is new beside others of its name: that they stay, and what to do if that was not meant.
    pub fn further(made: &[MoveId], before: &Self) -> Option<String> {
        let new =
            made.iter().find(|id| id.number > 0 && !before.has(id) && !before.named(&id.name).is_empty())?;
        let others: Vec<String> = before.named(&new.name).iter().map(|one| one.id.to_string()).collect();
        Some(format!(
            "{new} is new, with a mask of its own; {} stays as it was. To move a placed one, replace its mask.",
            others.join(", ")
        ))
    }

    /// Whether there is a placed move of that id.
    pub fn has(&self, id: &MoveId) -> bool {
        self.moves.iter().any(|one| one.id == *id)
    }

    /// The state with the numbers of ids for those of instances: to be read, not to be rendered.
    pub fn numbered(&self, state: &EditState) -> EditState {
        let mut state = state.clone();
        for module in state.modules.iter_mut().filter(|module| module.instance > 0) {
            if let Some(id) = self.id_of(&module.op, module.instance) {
                module.instance = id.number;
            }
        }
        // An order of one's own names instances by their real numbers.
        if state.sequence.is_empty() {
            order::sort(&mut state);
        }
        state
    }

    /// What a change of the move or module `name` is relative to: `facts`, with the white balance that was measured
    /// or taken over in place of the photo's own where warmth or tint may shift it.
    pub fn facts<'a>(&self, facts: &'a PhotoFacts, name: &str) -> Cow<'a, PhotoFacts> {
        let Some(balance) = self.balance.as_ref().filter(|_| name != TEMPERATURE && name != grey_card::MOVE)
        else {
            return Cow::Borrowed(facts);
        };
        let mut facts = facts.clone();
        let (Some(Params::Fields(own)), Params::Fields(set)) =
            (facts.baseline.module_mut(TEMPERATURE, 0).map(|module| &mut module.params), &balance.params)
        else {
            return Cow::Owned(facts);
        };
        for channel in ["red", "green", "blue"] {
            if let (Some(own), Some(set)) = (own.get_mut(channel), set.get(channel)) {
                *own = set.clone();
            }
        }
        Cow::Owned(facts)
    }

    /// Applies a move or look, or gives a placed one (`exposure#2`) other values; those that are left out stay.
    ///
    /// # Errors
    /// [`VocabularyError`], also where there is no such placed move, or it is given a mask.
    pub fn apply(
        &self,
        request: &ApplyRequest<'_>,
        state: &EditState,
        with: LayerContext<'_>,
    ) -> Result<(EditState, Operation), VocabularyError> {
        let LayerContext { vocabulary, layouts, darktable, .. } = with;
        let (name, id) = match MoveId::parse(request.move_name) {
            Some(id) if id.number > 0 => (id.name.clone(), Some(id)),
            Some(id) => (id.name, None),
            None => (request.move_name.to_owned(), None),
        };
        let facts = self.facts(with.facts, &name);
        let Some(id) = id else {
            let request = ApplyRequest { move_name: &name, ..*request };
            return Operation::apply(&request, vocabulary, state, &facts, layouts, darktable);
        };
        if request.mask.is_some() {
            return Err(VocabularyError::KeepsItsMask { id: id.to_string() });
        }
        let placed = self.find(&id)?;
        let known = values(placed);
        let at = PlacedInstance { move_name: &name, instance: placed.instance, values: &known };
        let applied = vocabulary.set_placed(at, request.values, state, with.facts, layouts, darktable)?;
        let operation = Operation::Apply(record(vocabulary, placed, &applied, None)?);
        Ok((applied.state, operation))
    }

    /// Gives a placed move another mask; its values stay. A move that is placed once needs no number.
    ///
    /// # Errors
    /// [`VocabularyError`], also where there is no such placed move.
    pub fn replace_mask(
        &self,
        name: &str,
        mask: &MaskSpec,
        state: &EditState,
        with: LayerContext<'_>,
    ) -> Result<(EditState, Operation), VocabularyError> {
        let placed = match (MoveId::parse(name), self.named(name).as_slice()) {
            (Some(id), _) => self.find(&id)?,
            (None, [only]) => *only,
            _ => return Err(self.nothing_placed(name)),
        };
        let LayerContext { vocabulary, facts, layouts, darktable } = with;
        let known = values(placed);
        let at = PlacedInstance { move_name: &placed.id.name, instance: placed.instance, values: &known };
        let applied = vocabulary.replace_mask(at, mask, state, facts, layouts, darktable)?;
        let made = record(vocabulary, placed, &applied, Some(mask))?;
        let operation =
            Operation::ReplaceMask { id: placed.id.to_string(), was: placed.instance, applied: made };
        Ok((applied.state, operation))
    }

    /// Takes back a move, a look or a module, or one placed move by its id.
    ///
    /// # Errors
    /// [`VocabularyError`], also where there is nothing to take back.
    pub fn remove(
        &self,
        name: &str,
        instance: Option<u32>,
        state: &EditState,
        with: LayerContext<'_>,
    ) -> Result<(EditState, Operation), VocabularyError> {
        let Some(id) = MoveId::parse(name) else {
            let selector = with.vocabulary.selector(name, instance);
            let new = with.vocabulary.remove_module(state, &selector, &self.facts(with.facts, name))?;
            return Ok((new, Operation::RemoveModule { instance, module: name.to_owned() }));
        };
        let (selector, module, instance) = match id.number {
            0 => (Selector::Unmasked(id.name.clone()), with.vocabulary.get(&id.name)?.module.clone(), 0),
            _ => {
                let placed = self.find(&id)?;
                let (op, instance) = (placed.place.op.clone(), placed.instance);
                (Selector::Module { op: op.clone(), instance: Some(instance) }, op, instance)
            }
        };
        let new = with.vocabulary.remove_module(state, &selector, &self.facts(with.facts, &id.name))?;
        Ok((new, Operation::RemovePlaced { id: id.to_string(), instance, module }))
    }

    fn named(&self, name: &str) -> Vec<&PlacedMove> {
        self.moves.iter().filter(|one| one.id.name == name).collect()
    }

    /// The placed move of an id.
    ///
    /// # Errors
    /// [`VocabularyError::NothingPlaced`], with those that there are.
    pub fn find(&self, id: &MoveId) -> Result<&PlacedMove, VocabularyError> {
        self.moves.iter().find(|one| one.id == *id).ok_or_else(|| self.nothing_placed(&id.to_string()))
    }

    fn nothing_placed(&self, name: &str) -> VocabularyError {
        let one = |placed: &PlacedMove| match &placed.applied {
            Some(applied) => self.words(applied),
            None => placed.id.to_string(),
        };
        let present: Vec<String> = self.moves.iter().map(one).collect();
        VocabularyError::NothingPlaced {
            id: name.to_owned(),
            present: if present.is_empty() { "none".into() } else { present.join("; ") },
        }
    }
}

const SPOTS_MODULE: &str = "retouch";

/// Whether an instance's name may begin an id; what a person called it in darktable may not.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether it sets the white balance other than by a shift that can be set anew.
fn sets_balance(op: &Operation, vocabulary: &Vocabulary) -> bool {
    match op {
        Operation::Apply(applied) => applied.name == grey_card::MOVE,
        Operation::ApplyLook { look, .. } => vocabulary.style(look).is_some(),
        Operation::BindLayers { steps } => steps.iter().any(|step| sets_balance(step, vocabulary)),
        Operation::Propagate { .. } => true,
        _ => false,
    }
}

fn values(placed: &PlacedMove) -> BTreeMap<String, f64> {
    let settings = placed.applied.iter().flat_map(|applied| &applied.values);
    settings.map(|(name, setting)| (name.clone(), setting.value)).collect()
}

/// The record of a change to a placed move.
fn record(
    vocabulary: &Vocabulary,
    placed: &PlacedMove,
    applied: &Applied,
    mask: Option<&MaskSpec>,
) -> Result<AppliedMove, VocabularyError> {
    let made = AppliedMove::of(vocabulary.get(&placed.id.name)?, applied, mask);
    // Where nobody said which mask it is, that it is one.
    let kept = || {
        placed.applied.as_ref().and_then(|a| a.mask.clone()).unwrap_or_else(|| placed.id.to_string().into())
    };
    Ok(AppliedMove { mask: made.mask.or_else(|| Some(kept())), ..made })
}

#[cfg(test)]
mod tests;
