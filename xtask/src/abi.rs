//! Generates layout checks from one data file: const asserts for Rust, static asserts for C.

use crate::disk;
use crate::run::{Outcome, root};
use std::collections::BTreeMap;
use std::fmt::Write;

struct Member {
    name: String,
    offset: String,
    size: String,
}

#[derive(Default)]
struct Data {
    structs: Vec<(String, String, Vec<Member>)>,
    consts: Vec<(String, String)>,
}

fn parse(text: &str) -> Result<Data, String> {
    let mut data = Data::default();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = |word: &str| word.to_owned();
        match words.as_slice() {
            [] | ["header", _] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["struct", name, size] => data.structs.push((own(name), own(size), Vec::new())),
            ["const", name, value] => data.consts.push((own(name), own(value))),
            [name, offset, size] => match data.structs.last_mut() {
                Some((_, _, members)) => members.push(Member { name: own(name), offset: own(offset), size: own(size) }),
                None => return Err(format!("values.txt:{}: a member without a struct", number + 1)),
            },
            _ => return Err(format!("values.txt:{}: {line}", number + 1)),
        }
    }
    Ok(data)
}

/// Structures of older API versions end in a number, and no header declares them.
fn is_historic(name: &str) -> bool {
    name.rsplit('_').next().is_some_and(|last| last.parse::<u32>().is_ok())
}

fn c_program(data: &Data) -> String {
    let mut out = String::from(
        "/* SPDX-License-Identifier: MIT OR Apache-2.0 */\n\
         /* Sizes, offsets and values of the public headers. Made by `cargo xtask abi`; not edited by hand. */\n\
         #include \"all.h\"\n\n\
         #ifdef __cplusplus\n#define CHECK(what) static_assert(what, #what)\n\
         #else\n#define CHECK(what) _Static_assert(what, #what)\n#endif\n\n",
    );
    for (name, size, members) in data.structs.iter().filter(|(name, ..)| !is_historic(name)) {
        let _ = writeln!(out, "CHECK(sizeof(struct {name}) == {size});");
        for Member { name: member, offset, size } in members {
            let member = member.trim_end_matches("[]");
            let _ = writeln!(out, "CHECK(offsetof(struct {name}, {member}) == {offset});");
            if size != "flex" {
                let _ = writeln!(out, "CHECK(sizeof(((struct {name} *) 0)->{member}) == {size});");
            }
        }
    }
    for (name, value) in &data.consts {
        let _ = writeln!(out, "CHECK((uint64_t) ({name}) == (uint64_t) ({value}));");
    }
    out.push_str("\nint main(void)\n{\n\treturn 0;\n}\n");
    out
}

fn rust_asserts(data: &Data) -> Result<String, String> {
    let mut source = String::new();
    for file in ["fabric", "data", "objects", "trigger"] {
        source.push_str(&disk::read(root().join("abi/src").join(format!("{file}.rs")))?);
    }
    let by_name: BTreeMap<&str, _> = data.structs.iter().map(|entry| (entry.0.as_str(), entry)).collect();
    let mut out = String::from(
        "//! Sizes and offsets of the public types. Made by `cargo xtask abi` from `abi/values.txt`; not\n\
         //! edited by hand.\n\n\
         use super::{data::*, fabric::*, objects::*, trigger::*};\nuse core::mem::offset_of;\n\n",
    );
    let declared = source.lines().filter_map(|line| {
        let line = line.trim_start();
        let name = line.strip_prefix("pub struct ").or_else(|| {
            let tables = ["fi_ops_", "fi_profile_ops", "fid_"];
            Some(line).filter(|line| tables.iter().any(|table| line.starts_with(table)) && line.contains(" {"))
        })?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    for name in declared {
        let Some((_, size, members)) = by_name.get(name) else { continue };
        let _ = writeln!(out, "const _: () = assert!(size_of::<{name}>() == {size});");
        for Member { name: member, offset, .. } in members {
            // Members of nested unions, flexible arrays and alias names have no field in Rust.
            if member.contains('.') || member.ends_with("[]") || matches!(member.as_str(), "data_progress" | "dmabuf") {
                continue;
            }
            let field = if member == "type" { "r#type" } else { member };
            let _ = writeln!(out, "const _: () = assert!(offset_of!({name}, {field}) == {offset});");
        }
    }
    Ok(out)
}

/// The generated files with their expected contents.
fn made() -> Result<[(&'static str, String); 2], String> {
    let data = parse(&disk::read(root().join("abi/values.txt"))?)?;
    Ok([("capi/tests/c/layout.c", c_program(&data)), ("abi/src/layout.rs", rust_asserts(&data)?)])
}

/// Writes the generated files.
pub(crate) fn write() -> Outcome {
    for (path, text) in made()? {
        disk::write(root().join(path), text)?;
    }
    Ok(())
}

/// Fails if a generated file is out of date.
pub(crate) fn verify() -> Outcome {
    for (path, text) in made()? {
        if disk::read(root().join(path))? != text {
            return Err(format!("{path} is out of date: run `cargo xtask abi`"));
        }
    }
    Ok(())
}
