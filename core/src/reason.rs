//! Why an offer does not meet the hints, in words: the attribute, and what is missing of it and nothing else.

use crate::caps::{Caps, Mode};
use core::fmt;

/// Why an offer does not meet the hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The attribute, as C spells it: `ep_attr->type`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What keeps an attribute of hints and one of an offer apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Another value is offered, or a smaller one.
    Differs {
        /// What was asked.
        wanted: String,
        /// What there is.
        offered: String,
    },
    /// Flags were asked for that are not offered.
    Lacks {
        /// The missing flags by their names.
        flags: String,
        /// Why they are missing, if there is more to say.
        because: Option<String>,
    },
    /// What was said of it cannot be used.
    Unusable {
        /// Why, in words.
        why: String,
    },
    /// The application has to do something that the hints do not say it will do.
    Requires {
        /// The modes by their names.
        modes: String,
    },
}

impl Reason {
    /// The reason that `field` was to be `wanted` and is `offered`.
    #[cold]
    pub fn new(field: &'static str, wanted: impl fmt::Display, offered: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Differs { wanted: wanted.to_string(), offered: offered.to_string() } }
    }

    /// The same for values with names, which [`fmt::Debug`] has all of.
    #[cold]
    pub fn differs<T: fmt::Debug>(field: &'static str, wanted: T, offered: T) -> Self {
        Self::new(field, format_args!("{wanted:?}"), format_args!("{offered:?}"))
    }

    /// The reason that flags of `field` are not offered.
    #[cold]
    pub fn lacks(field: &'static str, flags: String) -> Self {
        Self { field, problem: Problem::Lacks { flags, because: None } }
    }

    /// The reason that capabilities are not offered, and why.
    #[cold]
    pub fn lacks_because(field: &'static str, caps: Caps, because: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Lacks { flags: caps.text(), because: Some(because.to_string()) } }
    }

    /// The reason that what is said of `field` cannot be used.
    #[cold]
    pub fn unusable(field: &'static str, why: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Unusable { why: why.to_string() } }
    }

    /// The reason that modes are required which the hints do not grant.
    #[cold]
    pub fn requires(field: &'static str, modes: String) -> Self {
        Self { field, problem: Problem::Requires { modes } }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match &self.problem {
            Problem::Differs { wanted, offered } => write!(f, "{field}: asked for {wanted}, offered {offered}"),
            Problem::Lacks { flags, because: None } => write!(f, "{field}: lacks {flags}"),
            Problem::Lacks { flags, because: Some(why) } => write!(f, "{field}: lacks {flags}, because {why}"),
            Problem::Unusable { why } => write!(f, "{field}: {why}"),
            Problem::Requires { modes } => write!(f, "{field}: requires {modes}, which the hints do not grant"),
        }
    }
}

/// Flags of one set that are compared by inclusion.
pub(crate) fn subset<F>(field: &'static str, missing: F, text: impl FnOnce(F) -> String) -> Result<(), Reason>
where
    F: bitflags::Flags,
{
    if missing.is_empty() { Ok(()) } else { Err(Reason::lacks(field, text(missing))) }
}

/// Modes that a provider requires, all of which the hints must grant.
pub(crate) fn granted(field: &'static str, required: Mode, granted: Mode) -> Result<(), Reason> {
    let missing = required - granted;
    if missing.is_empty() { Ok(()) } else { Err(Reason::requires(field, missing.text())) }
}
