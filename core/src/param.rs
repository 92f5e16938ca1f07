//! Parameters: each `FI_*` variable that changes something is one constant, from which its value, its
//! description and its documentation come (fi_provider(7), "ENVIRONMENT").

/// Kind of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Text.
    String,
    /// A whole number.
    Int,
    /// yes or no, true or false, on or off, 1 or 0.
    Bool,
    /// A number of bytes or entries.
    Size,
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name in the environment, such as `FI_TCP_IFACE`.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: ParamKind,
    /// What it changes, its unit and its default.
    pub help: &'static str,
}

impl Param {
    /// Its text, if it is set.
    pub fn text(&self) -> Option<String> {
        std::env::var(self.name).ok()
    }

    /// Its value as a truth value; `default` if it is not set or not one.
    pub fn flag(&self, default: bool) -> bool {
        self.text().as_deref().and_then(parse_bool).unwrap_or(default)
    }

    /// Its value as a number; `default` if it is not set or not one.
    pub fn number(&self, default: u64) -> u64 {
        self.text().as_deref().and_then(parse_number).unwrap_or(default)
    }
}

/// A truth value in one of its spellings.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// A number, decimal or with the prefix 0x.
pub fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_their_spellings() {
        assert_eq!(parse_bool("Yes"), Some(true));
        assert_eq!(parse_bool("off"), Some(false));
        assert_eq!(parse_bool("2"), None);
        assert_eq!(parse_number("0x10"), Some(16));
        assert_eq!(parse_number(" 7 "), Some(7));
        assert_eq!(parse_number("seven"), None);
    }
}
