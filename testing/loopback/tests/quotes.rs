//! The code that `docs/add-a-provider.md` quotes is in the file that it names above the quote.

use std::fs::read_to_string;
use std::path::Path;

/// The quotes of a page: the named file, and the code.
fn quotes(page: &str) -> Vec<(&str, &str)> {
    let mut blocks = page.split("\n```");
    let mut found = Vec::new();
    while let (Some(text), Some(block)) = (blocks.next(), blocks.next()) {
        let name = text.lines().last().and_then(|line| line.strip_prefix('`')?.strip_suffix("`:"));
        if let (Some(name), Some((_, code))) = (name, block.split_once('\n')) {
            found.push((name, code));
        }
    }
    found
}

#[test]
fn quoted_code_is_in_the_file_that_the_page_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = read_to_string(root.join("docs/add-a-provider.md")).unwrap();
    let quotes = quotes(&page);
    assert!(quotes.len() >= 8, "{} quotes are found", quotes.len());
    let named = page.lines().filter(|line| line.starts_with('`') && line.ends_with("`:")).count();
    assert_eq!(quotes.len(), named, "each named file is followed by a quote");
    for (name, code) in quotes {
        let text = read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains(&format!("{code}\n")), "{name} does not contain\n{code}");
    }
}

#[test]
fn only_blocks_under_a_file_name_are_quotes() {
    let page = "text\n\n`a/b.rs`:\n```rust\none\ntwo\n```\n\n```\nrun this\n```\n";
    assert_eq!(quotes(page), [("a/b.rs", "one\ntwo")]);
}
