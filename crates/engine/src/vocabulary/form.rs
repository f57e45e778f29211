//! How a move computes a field: `0.5*amount + 0.2`, in text and as a number.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::vocabulary::white_balance;

/// A sum of a constant and of parameters times factors.
///
/// The grammar: terms joined by `+` and `-`; a term is a number, a parameter, or a number `*` a parameter. Instead of
/// a parameter, `daylight_red(p)` and `daylight_blue(p)` take a shift `p` in mired along the daylight locus.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    constant: f64,
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    factor: f64,
    function: Function,
    parameter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Identity,
    DaylightRed,
    DaylightBlue,
}

impl Function {
    fn call(self, x: f64) -> f64 {
        match self {
            Self::Identity => x,
            Self::DaylightRed => white_balance::daylight_gains(x).0,
            Self::DaylightBlue => white_balance::daylight_gains(x).1,
        }
    }
}

impl Form {
    /// The value for these parameters; a parameter that is missing counts as 0.
    pub fn value(&self, parameters: &BTreeMap<String, f64>) -> f64 {
        self.terms.iter().fold(self.constant, |sum, term| {
            let x = parameters.get(&term.parameter).copied().unwrap_or(0.0);
            sum + term.factor * term.function.call(x)
        })
    }

    /// Whether whole parameters give a whole number: no fraction in it, and no function.
    pub(crate) fn is_whole(&self) -> bool {
        let plain = |term: &Term| term.function == Function::Identity && term.factor.fract() == 0.0;
        self.constant.fract() == 0.0 && self.terms.iter().all(plain)
    }

    /// The parameters that it uses.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.parameter.as_str())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut form = Self { constant: 0.0, terms: Vec::new() };
        let mut rest = text.trim();
        let mut sign = 1.0;
        if let Some(after) = rest.strip_prefix('-') {
            sign = -1.0;
            rest = after;
        }
        loop {
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            let (term, tail) = rest.split_at(end);
            form.add(sign, term.trim())
                .map_err(|reason| format!("`{text}` is not a linear form: {reason}"))?;
            sign = match tail.chars().next() {
                None => return Ok(form),
                Some('-') => -1.0,
                Some(_) => 1.0,
            };
            rest = tail.get(1..).unwrap_or_default();
        }
    }
}

impl Form {
    fn add(&mut self, sign: f64, term: &str) -> Result<(), String> {
        let (factor, name) = match term.split_once('*') {
            Some((number, name)) => (finite(number)?, name.trim()),
            None if term.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
                self.constant += sign * finite(term)?;
                return Ok(());
            }
            None => (1.0, term),
        };
        let (function, parameter) = match name.strip_suffix(')').and_then(|call| call.split_once('(')) {
            None => (Function::Identity, name),
            Some(("daylight_red", inner)) => (Function::DaylightRed, inner.trim()),
            Some(("daylight_blue", inner)) => (Function::DaylightBlue, inner.trim()),
            Some((other, _)) => return Err(format!("there is no function `{other}`")),
        };
        if !is_name(parameter) {
            return Err(format!("`{parameter}` is not a parameter name"));
        }
        self.terms.push(Term { factor: sign * factor, function, parameter: parameter.to_owned() });
        Ok(())
    }
}

fn finite(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!("`{}` is not a number", text.trim())),
    }
}

/// Whether `text` is a name as moves and parameters have them: lower-case letters, digits and underscores.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// A field of a module's parameters, or one element of an array field: `shadows_C`, `grey[1]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The field's name.
    pub field: String,
    /// The element, for an array.
    pub index: Option<usize>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a field: write `name` or `name[index]`");
        let (field, index) = match text.split_once('[') {
            None => (text, None),
            Some((field, index)) => {
                let digits = index.strip_suffix(']').ok_or_else(bad)?;
                (field, Some(digits.parse().map_err(|_| bad())?))
            }
        };
        if field.is_empty() || !field.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            return Err(bad());
        }
        Ok(Self { field: field.to_owned(), index })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.write_str(&self.field),
            Some(index) => write!(f, "{}[{index}]", self.field),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(form: &str, x: f64) -> f64 {
        form.parse::<Form>().unwrap().value(&BTreeMap::from([("x".to_owned(), x), ("y".to_owned(), 10.0)]))
    }

    #[test]
    fn linear_forms_are_what_they_say() {
        assert_eq!(value("x", 2.0), 2.0);
        assert_eq!(value("-x", 2.0), -2.0);
        assert_eq!(value("1 - x", 0.25), 0.75);
        assert_eq!(value("0.5*x + 0.2", 2.0), 1.2);
        assert_eq!(value("-0.5*x+ y -3", 2.0), 6.0);
        assert_eq!(value("daylight_red(x)", 0.0), 1.0);
        assert_eq!(value("2*daylight_blue(x)", 0.0), 2.0);
        assert_eq!("x + 0.5*y".parse::<Form>().unwrap().parameters().collect::<Vec<_>>(), ["x", "y"]);
    }

    #[test]
    fn what_is_no_linear_form_is_refused_with_the_reason() {
        for bad in ["", "x +", "x*x", "2x", "NaN", "1e400*x", "X", "sin(x)", "x y", "--x", "(x)", "x/2"] {
            let error = bad.parse::<Form>().unwrap_err();
            assert!(error.contains(bad), "{bad}: {error}");
        }
    }

    #[test]
    fn targets_name_fields_and_elements() {
        assert_eq!("center.x".parse::<Target>().unwrap().to_string(), "center.x");
        let element = "grey[2]".parse::<Target>().unwrap();
        assert_eq!((element.field.as_str(), element.index), ("grey", Some(2)));
        for bad in ["", "[1]", "grey[", "grey[x]", "grey[-1]", "a b", "grey[1]x"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
