//! Masks that are found in the photo's picture, before the engine gets them.

use std::borrow::Cow;

use crate::tools::ToolContext;
use base::error::Fault;
use darktable::render::Quality;
use darktable::state::EditState;
use engine::vocabulary::{MaskSpec, OBJECT_EDGE, Region, sought_in};

impl ToolContext<'_> {
    /// The mask with what it looks for found, on the picture that a state's geometry gives: the baseline's, which is
    /// rendered, under a permit, if nobody looked at it yet.
    pub fn find_mask<'m>(
        &mut self,
        mask: &'m MaskSpec,
        state: &EditState,
    ) -> Result<Cow<'m, MaskSpec>, Fault> {
        if !mask.is_sought() {
            return Ok(Cow::Borrowed(mask));
        }
        mask.check_sought().map_err(|e| Fault::from(&e))?;
        let sought = sought_in(state, &self.engine.facts.baseline);
        let edge = self.view.start.preview_edge;
        let edge = if edge * 2 >= OBJECT_EDGE { edge } else { OBJECT_EDGE };
        let rendered = self.render(&sought, edge, Quality::Preview)?;
        mask.find(&rendered.picture).map(Cow::Owned).map_err(|e| Fault::from(&e))
    }

    /// The same for the masks of regions.
    pub fn find_regions(&mut self, regions: &[Region], state: &EditState) -> Result<Vec<Region>, Fault> {
        let found = |region: &Region| {
            let mask = self.find_mask(&region.mask, state)?.into_owned();
            Ok(Region { mask, ..region.clone() })
        };
        regions.iter().map(found).collect()
    }
}
