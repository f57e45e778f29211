//! Masks that the photo gives a name, or that are found in its picture, before the engine gets them.

use std::borrow::Cow;

use serde_json::json;

use crate::tools::args::SaveMask;
use crate::tools::{Answer, ToolContext};
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
        let mask = match mask.is_named() {
            true => Cow::Owned(self.photo.workspace().with_saved(mask).map_err(|e| Fault::from(&e))?),
            false => Cow::Borrowed(mask),
        };
        if !mask.is_sought() {
            return Ok(mask);
        }
        mask.check_sought().map_err(|e| Fault::from(&e))?;
        let sought = sought_in(state, &self.engine.facts.baseline);
        let edge = self.view.start.preview_edge;
        let edge = if edge * 2 >= OBJECT_EDGE { edge } else { OBJECT_EDGE };
        let rendered = self.render(&sought, edge, Quality::Preview)?;
        mask.find(&rendered.picture).map(Cow::Owned).map_err(|e| Fault::from(&e))
    }

    /// Gives a mask a name on this photo.
    pub fn save_mask(&mut self, args: &SaveMask) -> Result<Answer, Fault> {
        let place = self.place(None)?;
        let mask = self.find_mask(&args.mask, &place.state)?.into_owned();
        self.engine.vocabulary.check_mask(&mask).map_err(|e| Fault::from(&e).with("field", "mask"))?;
        self.photo.save_mask(&args.name, &mask).map_err(|e| Fault::from(&e).with("field", "name"))?;
        Ok(json!({ "saved": args.name, "mask": mask.summary() }).into())
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

/// The tool `save_mask`.
pub fn save_mask(context: &mut ToolContext<'_>, args: SaveMask) -> Result<Answer, Fault> {
    context.save_mask(&args)
}
