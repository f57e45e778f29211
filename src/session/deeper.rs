//! A session without a word of its own goes on with the last direction of the photo's history, and further.

use crate::session::{SessionError, listing};
use crate::transcript::Vector;
use engine::photo::Workspace;
use pixels::metrics::intensity::Intensity;

/// How such a direction begins.
const DEEPER: &str = "go deeper: ";

/// The last direction that a session on the photo was given, at a higher intensity; `None` where there was none. A
/// session that cannot be read says nothing.
///
/// # Errors
/// If the photo's sessions cannot be listed.
pub(super) fn last(workspace: &Workspace) -> Result<Option<Vector>, SessionError> {
    let last = listing::of_photo(workspace)?.iter().find_map(|id| {
        let session = listing::read(workspace, id).ok()?;
        session.state.start.branches.iter().rev().find_map(|planned| planned.vector.clone())
    });
    Ok(last.map(|last| further(&last)))
}

/// A direction once more, and further.
fn further(last: &Vector) -> Vector {
    let said = last.direction.strip_prefix(DEEPER).unwrap_or(&last.direction);
    let intensity = match Intensity::of(said, last.intensity.as_deref()) {
        Intensity::Gentle => "plain",
        _ => "strong",
    };
    let said = if said.is_empty() { last.name.as_str() } else { said };
    Vector { direction: format!("{DEEPER}{said}"), intensity: Some(intensity.to_owned()), ..last.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d3_the_last_direction_comes_again_and_stronger_and_says_so_once() {
        let vector = |direction: &str, intensity: Option<&str>| Vector {
            name: "tone".parse().unwrap(),
            direction: direction.into(),
            intensity: intensity.map(Into::into),
        };
        let once = further(&vector("open the shadows", Some("subtle")));
        assert_eq!(
            (once.direction.as_str(), once.intensity.as_deref()),
            ("go deeper: open the shadows", Some("plain"))
        );
        let twice = further(&once);
        assert_eq!(
            (twice.direction.as_str(), twice.intensity.as_deref()),
            ("go deeper: open the shadows", Some("strong"))
        );
        assert_eq!(further(&vector("", None)).direction, "go deeper: tone");
    }
}
