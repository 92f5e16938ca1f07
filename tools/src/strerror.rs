//! `fi_strerror`.

use ofi::{Errno, Error};

/// Prints the text of a fabric error number.
#[derive(Debug, clap::Parser)]
#[command(name = "fi_strerror", version)]
pub struct Options {
    /// The number: decimal, octal (0…) or hexadecimal (0x…); the sign is ignored
    #[arg(value_name = "FI_ERROR_CODE", allow_negative_numbers = true)]
    code: String,
}

/// Parses a number in C notation.
fn parse(text: &str) -> Option<i32> {
    let digits = text.trim_start_matches('-');
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8).ok()?,
        None => digits.parse().ok()?,
    };
    i32::try_from(number).ok()
}

/// Prints the text.
///
/// # Errors
/// EINVAL if the argument is not a number.
pub fn run(options: &Options) -> Result<bool, Error> {
    let code = parse(&options.code)
        .ok_or_else(|| Error::new(Errno::EINVAL, format!("read the number \"{}\"", options.code)))?;
    println!("{}", describe(code));
    Ok(true)
}

/// The system's text below `EOTHER`, the library's from there on.
fn describe(code: i32) -> String {
    if code < Errno::EOTHER.raw() {
        let text = std::io::Error::from_raw_os_error(code).to_string();
        return text.split(" (os error").next().unwrap_or_default().to_owned();
    }
    let own = Errno::from_raw(code).text().or(Errno::EOTHER.text());
    own.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_writes_them() {
        assert_eq!(parse("-22"), Some(22));
        assert_eq!(parse("0x101"), Some(257));
        assert_eq!(parse("020"), Some(16));
        assert_eq!(parse("0"), Some(0));
        assert_eq!(parse("many"), None);
    }

    #[test]
    fn texts_are_the_systems_and_the_librarys() {
        assert_eq!(describe(0), "Success");
        assert_eq!(describe(22), "Invalid argument");
        assert_eq!(describe(257), "Provided buffer is too small");
        assert_eq!(describe(100_000), "Unspecified error");
    }
}
