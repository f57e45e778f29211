//! Masks that the photo gives a name, or that are found in its picture, by hand.

use super::failure::Failure;
use super::setup::{App, interactive_deadline};
use darktable::render::{ByHand, Quality, RenderRequest};
use darktable::state::EditState;
use engine::photo::Workspace;
use engine::vocabulary::{MaskSpec, OBJECT_EDGE, PhotoFacts, Region, sought_in};

/// The mask with what it looks for found; the picture it needs is rendered.
pub fn find(
    app: &App,
    photo: &Workspace,
    state: &EditState,
    facts: &PhotoFacts,
    mask: MaskSpec,
) -> Result<MaskSpec, Failure> {
    let mask = photo.with_saved(&mask)?;
    if !mask.is_sought() {
        return Ok(mask);
    }
    mask.check_sought()?;
    let sought = sought_in(state, &facts.baseline);
    let request = RenderRequest {
        raw: &photo.raw(),
        state: &sought,
        long_edge: OBJECT_EDGE,
        quality: Quality::Preview,
    };
    let rendered = app.renderer()?.render(&request, &interactive_deadline(), &ByHand)?;
    Ok(mask.find(&rendered.picture)?)
}

/// The same for the masks of regions.
pub fn find_regions(
    app: &App,
    photo: &Workspace,
    state: &EditState,
    facts: &PhotoFacts,
    regions: &[Region],
) -> Result<Vec<Region>, Failure> {
    let found = |region: &Region| {
        Ok(Region { mask: find(app, photo, state, facts, region.mask.clone())?, ..region.clone() })
    };
    regions.iter().map(found).collect()
}
