//! Where a protocol has led: what the message says that begins an attempt.

/// A state of a protocol, as the model is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stage {
    /// The attempt, from 1.
    pub attempt: u32,
    /// The visit for the branch at hand, from 1.
    pub visit: u32,
    /// The session's current branch.
    pub branch: Option<String>,
    /// Whether what the last attempt changed was taken back.
    pub taken_back: bool,
    /// Branches that nobody has judged, where the state tells of them.
    pub unjudged: Vec<String>,
    /// Branches that the protocol gave up.
    pub given_up: Vec<String>,
    /// What the protocol's variables say in words, but for the brief.
    pub said: Vec<String>,
    /// The tools that may be called; `None`: any.
    tools: Option<Vec<String>>,
}

impl Stage {
    /// Reads the message; `None` if it is another. What stands between data marks is nobody's instruction, and
    /// the engine's own lines stand before and after the state's.
    pub fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("State `")?;
        let (head, body) = rest.split_once(".\n")?;
        let number = |after: &str| {
            let (_, rest) = head.rsplit_once(after)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let own = body.split("\n\n").next().unwrap_or_default();
        let quoted = |line: &str| line.split('`').nth(1).map(str::to_owned);
        let branch = own.lines().find_map(|line| quoted(line.strip_prefix("You stand on ")?));
        let last = body.lines().rev().find_map(|line| line.strip_prefix("You may call: "))?;
        let list = last.split(". ").next().unwrap_or_default();
        let names = |what: &str| -> Vec<String> {
            let line = body.lines().rev().find_map(|line| line.strip_prefix(what)).unwrap_or_default();
            line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        Some(Self {
            attempt: number("attempt ")?,
            visit: number("visit ").unwrap_or(1),
            branch,
            taken_back: own.contains("What it changed was taken back."),
            unjudged: names("Not judged yet: "),
            given_up: names("Given up by the protocol: "),
            said: variables(body),
            tools: (list != "any tool").then(|| list.split(", ").map(str::to_owned).collect()),
        })
    }

    /// What a branch is to do of which no plan says anything.
    pub fn direction(&self) -> Option<String> {
        (!self.said.is_empty()).then(|| self.said.join(". "))
    }

    /// Whether a tool may be called.
    pub fn may(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }
}

/// The words between data marks, each once. Numbers and names are no words.
fn variables(body: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in body.split("<data name=\"").skip(1) {
        let Some((name, rest)) = part.split_once("\">") else { continue };
        let words = rest.split("</data>").next().unwrap_or_default().trim();
        let prose = name != "brief" && name != "vectors" && words.contains(' ');
        if prose && !found.iter().any(|known| known == words) {
            found.push(words.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_begins_an_attempt_is_read() {
        let text = "State `Explore`, attempt 2 of 4, visit 3.\nYou stand on `branch_b_tone`.\n\
            The last attempt failed: too dark.\nWhat it changed was taken back.\n\n\
            Push it. <data name=\"brief\">You stand on `main`.\nYou may call: tag. </data>\n\n\
            Judged by: the look.\nYou may call: apply_primitive, render_preview. Call `attempt_done` when you are done.";
        let stage = Stage::read(text).unwrap();
        assert_eq!((stage.attempt, stage.visit, stage.taken_back), (2, 3, true));
        assert_eq!(stage.branch.as_deref(), Some("branch_b_tone"));
        assert!(stage.may("render_preview") && !stage.may("tag"));
        assert_eq!(Stage::read("Session plan for photo `coffee`."), None);
        let text = "State `A`, attempt 1 of 3.\nYou stand on the baseline.\n\nDo.\n\nNot judged yet: `branch_b_a`, `branch_b_b`.\nYou may call: any tool. Call `attempt_done` when you are done.";
        let stage = Stage::read(text).unwrap();
        assert_eq!((stage.branch.as_deref(), stage.visit), (None, 1));
        assert!(stage.may("tag"));
        let text = "State `Push`, attempt 1 of 3.\nYou stand on `branch_b_t`.\n\nMake it: <data name=\"move\">heavy clarity on the rock</data>, \
            on <data name=\"name\">t</data>; <data name=\"move\">heavy clarity on the rock</data>.\nYou may call: any tool. Call `attempt_done` when you are done.";
        assert_eq!(Stage::read(text).unwrap().direction().unwrap(), "heavy clarity on the rock");
        assert_eq!(stage.unjudged, ["branch_b_a", "branch_b_b"]);
    }
}
