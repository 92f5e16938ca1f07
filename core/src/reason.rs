//! Why an offer does not meet the hints, in words: the attribute, and exactly what it lacks.

use crate::caps::{Caps, Mode};
use core::fmt;

/// Why an offer does not meet the hints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The attribute, as C spells it: `ep_attr->type`.
    pub field: &'static str,
    /// The problem with it.
    pub problem: Problem,
}

/// How an attribute of the hints differs from the offer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The provider offers another value, or a smaller one.
    Differs {
        /// The requested value.
        wanted: String,
        /// The offered value.
        offered: String,
    },
    /// The provider does not offer some requested flags.
    Lacks {
        /// The missing flags by their names.
        flags: String,
        /// Why they are missing, if there is more to say.
        because: Option<String>,
    },
    /// The value is unusable.
    Unusable {
        /// Why, in words.
        why: String,
    },
    /// The provider requires modes that the hints do not grant.
    Requires {
        /// The modes by their names.
        modes: String,
    },
}

impl Reason {
    /// The reason that the hints ask for `wanted` in `field` and the provider offers `offered`.
    #[cold]
    pub fn new(field: &'static str, wanted: impl fmt::Display, offered: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Differs { wanted: wanted.to_string(), offered: offered.to_string() } }
    }

    /// The same for values whose [`fmt::Debug`] is their header name.
    #[cold]
    pub fn differs<T: fmt::Debug>(field: &'static str, wanted: T, offered: T) -> Self {
        Self::new(field, format_args!("{wanted:?}"), format_args!("{offered:?}"))
    }

    /// The reason that the provider does not offer some flags of `field`.
    #[cold]
    pub fn lacks(field: &'static str, flags: String) -> Self {
        Self { field, problem: Problem::Lacks { flags, because: None } }
    }

    /// The reason that the provider does not offer some capabilities, with an explanation.
    #[cold]
    pub fn lacks_because(field: &'static str, caps: Caps, because: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Lacks { flags: caps.text(), because: Some(because.to_string()) } }
    }

    /// The reason that the value of `field` is unusable.
    #[cold]
    pub fn unusable(field: &'static str, why: impl fmt::Display) -> Self {
        Self { field, problem: Problem::Unusable { why: why.to_string() } }
    }

    /// The reason that the hints do not grant required modes.
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

/// Fails if flags are missing from an offer.
pub(crate) fn subset<F>(field: &'static str, missing: F, text: impl FnOnce(F) -> String) -> Result<(), Reason>
where
    F: bitflags::Flags,
{
    if missing.is_empty() { Ok(()) } else { Err(Reason::lacks(field, text(missing))) }
}

/// Fails if the hints do not grant all modes that a provider requires.
pub(crate) fn granted(field: &'static str, required: Mode, granted: Mode) -> Result<(), Reason> {
    let missing = required - granted;
    if missing.is_empty() { Ok(()) } else { Err(Reason::requires(field, missing.text())) }
}
