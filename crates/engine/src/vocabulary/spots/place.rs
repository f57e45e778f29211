//! Where a spot is, and what can be wrong with what is said of it.

use std::ops::RangeInclusive;

use super::outline::{Picture, sides};
use super::{Spot, SpotAction};

/// The radii that a spot may have, as shares of the picture's shorter side.
const RADII: RangeInclusive<f64> = 0.002..=0.25;

/// How many corners an outline may have.
const CORNERS: RangeInclusive<usize> = 3..=64;

/// How far a blur may reach, as a share of the picture's shorter side, and how far it does unless it is said.
const BLURS: RangeInclusive<f64> = 0.0005..=0.1;
pub(super) const BLUR: f64 = 0.01;

/// The most that darktable blurs, in pixels of the raw.
const MOST_BLUR: f64 = 200.0;

/// Where a spot is: its shape, checked.
pub(super) enum SpotShape {
    Circle { center: [f64; 2], radius: f64 },
    Path(Vec<[f64; 2]>),
}

impl SpotShape {
    pub(super) fn center(&self) -> [f64; 2] {
        match self {
            Self::Circle { center, .. } => *center,
            Self::Path(corners) => middle(corners),
        }
    }

    /// Half its width in pixels of a picture of that size: the radius of a circle; of an outline twice its area by its
    /// perimeter, which for a circle would be the radius too.
    pub(super) fn half_width(&self, size: [f64; 2]) -> f64 {
        match self {
            Self::Circle { radius, .. } => radius * size[0].min(size[1]),
            Self::Path(corners) => {
                let corners: Vec<_> = corners.iter().map(|[x, y]| [x * size[0], y * size[1]]).collect();
                let (mut area, mut perimeter) = (0.0, 0.0);
                for ([ax, ay], [bx, by]) in sides(&corners) {
                    area += (ax * by - bx * ay) / 2.0;
                    perimeter += (ax - bx).hypot(ay - by);
                }
                2.0 * f64::abs(area) / f64::max(perimeter, f64::MIN_POSITIVE)
            }
        }
    }
}

pub(super) fn middle(corners: &[[f64; 2]]) -> [f64; 2] {
    let [x, y] = corners.iter().fold([0.0, 0.0], |[x, y], at| [x + at[0], y + at[1]]);
    let count = corners.len().max(1) as f64;
    [x / count, y / count]
}

/// Where a spot is. The error says what is wrong with it.
pub(super) fn check(spot: &Spot, picture: &Picture) -> Result<SpotShape, String> {
    let across = |name: &str, value: f64| match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err(format!("`{name}` cannot be {value}: it goes from 0 to 1, across the picture")),
    };
    let within = |name: &str, value: f64, range: &RangeInclusive<f64>| match range.contains(&value) {
        true => Ok(()),
        false => Err(format!(
            "`{name}` cannot be {value}: it goes from {} to {} of the picture's shorter side",
            range.start(),
            range.end()
        )),
    };
    let only = |name: &str, given: bool, action: SpotAction| match given && spot.action != action {
        true => Err(format!("`{name}` belongs to the action `{}`", action.name())),
        false => Ok(()),
    };
    for value in spot.source.unwrap_or_default() {
        across("source", value)?;
    }
    if spot.source.is_some() && !spot.action.takes() {
        return Err(format!("the action `{}` takes nothing from a `source`", spot.action.name()));
    }
    only("blur_radius", spot.blur_radius.is_some(), SpotAction::Blur)?;
    only("color", spot.color.is_some(), SpotAction::Fill)?;
    if spot.action == SpotAction::Blur {
        let radius = spot.blur_radius.unwrap_or(BLUR);
        within("blur_radius", radius, &BLURS)?;
        let most = MOST_BLUR / picture.short();
        if radius > most {
            return Err(format!(
                "`blur_radius` cannot be {radius}: on this photo darktable blurs by {most:.4} at most"
            ));
        }
    }
    match (spot.x, spot.y, &spot.path) {
        (Some(x), Some(y), None) => {
            across("x", x)?;
            across("y", y)?;
            let radius = spot.radius.unwrap_or(Spot::RADIUS);
            within("radius", radius, &RADII)?;
            Ok(SpotShape::Circle { center: [x, y], radius })
        }
        (None, None, Some(corners)) if spot.action != SpotAction::Remove && spot.radius.is_none() => {
            let count = corners.len();
            if !CORNERS.contains(&count) {
                let (least, most) = (CORNERS.start(), CORNERS.end());
                return Err(format!("`path` has {count} corners; it needs {least} to {most}"));
            }
            corners.iter().flatten().try_for_each(|value| across("path", *value))?;
            let place = SpotShape::Path(corners.clone());
            if place.half_width(picture.size) < RADII.start() * picture.short() {
                return Err("`path` encloses next to nothing: go around the blemish, not along it".into());
            }
            Ok(place)
        }
        (None, None, Some(_)) => {
            Err("a spot with a `path` has no `radius`, and is taken back by a point in it".into())
        }
        _ => Err("a spot is where `x` and `y` say, or within a `path`".into()),
    }
}
