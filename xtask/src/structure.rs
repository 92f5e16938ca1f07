//! Structure rules of `xtask check`: no two modules import each other, files and structs stay
//! readable in size, and abandoned names do not return.

use crate::disk;
use crate::run::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::Visit;

/// Maximum file length in lines, and the exceptions with their reasons.
const MOST_LINES: usize = 600;
const LONG: &[(&str, &str)] = &[
    ("abi/src/layout.rs", "made by `cargo xtask abi` from one table"),
    ("testing/sim/src/lib.rs", "the simulated network and its faults, in one state"),
    ("testing/sim/tests/two_engines.rs", "one random scenario, its model and its checks"),
];

/// Maximum number of a struct's fields, and the exceptions with their reasons.
const MOST_FIELDS: usize = 12;
const WIDE: &[(&str, &str)] = &[
    ("capi/src/endpoint/object.rs: EpObj", "the data of all endpoint calls, in one allocation behind its fid_ep"),
    ("core/src/info.rs: DomainAttr", "the attributes of fi_domain(3)"),
    ("providers/tcp/src/conn.rs: Conn", "the fields that every poll of a connection reads, side by side"),
    (
        "providers/tcp/src/transport.rs: TcpTransport",
        "accepting and reading are separate modules; the rest is not divided yet",
    ),
    ("rdma/ffi/src/list.rs: rdma_addrinfo", "the layout of rdma_getaddrinfo(3)"),
    ("rdma/src/path.rs: PathRecord", "the layout of a path record"),
    ("testing/sim/src/lib.rs: State", "the whole of a simulated world"),
    ("tools/src/info.rs: Options", "a field for each option of fi_info(1)"),
    ("tools/src/pingpong.rs: Options", "a field for each option of fi_pingpong(1)"),
    ("xtask/src/bench/case.rs: Case", "a field for each dimension of a measurement"),
];

/// Abandoned names, the folder in which they must not return, and the field's term for each.
const GIVEN_UP: &[(&str, &str, &str)] = &[
    ("AckWanted", "", "AckMode"),
    ("Arriving", "", "Incoming"),
    ("Asked", "", "ConnectRequest"),
    ("Asker", "", "Initiator"),
    ("AT_ONCE", "", "INLINE_MAX"),
    ("Blank", "sync/", "SlotWriter"),
    ("Board", "", "ReadyBitmap"),
    ("Bonds", "", "Bindings"),
    ("CntrHeld", "", "CounterControl"),
    ("CqHeld", "", "QueueControl"),
    ("DgramHeld", "", "EndpointControl"),
    ("Doomed", "", "LinkFailed"),
    ("EpHeld", "", "EndpointControl"),
    ("Giver", "", "Acceptor"),
    ("Grant", "engine/", "Credits"),
    ("Greeting", "", "Handshake"),
    ("Heat", "", "ReadyFlag"),
    ("Inbox", "", "ReadyList"),
    ("Label", "engine/", "MessageInfo"),
    ("Landing", "", "RecvTarget"),
    ("Leave", "providers/", "CmaPermission"),
    ("Letter", "", "ControlDatagram"),
    ("Mailbox", "", "ControlSocket"),
    ("Matcher", "", "MatchQueue"),
    ("Member", "engine/", "Pollable"),
    ("Multi", "engine/", "MultiRecv"),
    ("NotAsked", "", "NotRequested"),
    ("Opens", "", "OpenEndpoint"),
    ("Outlets", "", "CompletionSinks"),
    ("Owed", "", "WakeAction"),
    ("Place", "engine/", "Disposition"),
    ("Port", "", "WaitObject"),
    ("Post", "providers/", "ControlChannel"),
    ("Posts", "", "MessageOps"),
    ("Posture", "", "SleepState"),
    ("Pulling", "", "Rendezvous"),
    ("Question", "", "ConnectRequest"),
    ("Receipt", "", "LivenessPipe"),
    ("Said", "providers/", "ControlMessage"),
    ("Sink", "engine/", "LinkEvents"),
    ("Speaker", "engine/", "EndpointKind"),
    ("Turns", "", "PollSchedule"),
    ("Visit", "engine/", "PollOutcome"),
    ("Window", "providers/", "FifoAllocator"),
    ("absent", "capi/", "enosys"),
    ("adopt", "", "accept, attach"),
    ("affords", "", "can_send"),
    ("bury", "", "disable"),
    ("carve", "", "alloc_multi_recv_slot"),
    ("errands", "", "deferred_callbacks"),
    ("give_renamed", "", "rematch"),
    ("greeting", "", "hello, handshake"),
    ("landing", "", "target"),
    ("lane", "", "queue"),
    ("lanes", "", "match_queues"),
    ("lending", "", "cma"),
    ("outlets", "", "sinks"),
    ("owed", "", "unreturned, wake_action"),
    ("post_at_once", "", "try_post_fast"),
    ("resurrect", "", "after_fork_in_child"),
    ("see_to_it", "", "wake_progress_thread"),
    ("send_at_once", "", "try_send_fast"),
    ("several", "engine/", "multi_recv"),
    ("spoiled", "", "handle_recv_failed"),
    ("staying", "", "persistent"),
    ("submit_at_once", "", "try_submit_fast"),
    ("take_at_once", "", "try_recv_fast"),
    ("unplaced", "", "handle_recv_retry"),
    ("unsent", "", "handle_send_failed"),
];

/// The problems, by check.
pub(crate) fn problems() -> Result<Vec<(&'static str, Vec<String>)>, String> {
    let sources = sources()?;
    Ok(vec![
        ("file sizes", long_files(&sources)),
        ("module cycles", cycles(&sources)),
        ("struct sizes", wide_structs(&sources)),
        ("given-up names", given_up(&sources)),
        ("comment widths", wide_comments(&sources)),
        ("the walk", walk(&disk::read(root().join("ARCHITECTURE.md"))?, &sources)),
    ])
}

/// A parsed file.
struct Source {
    path: String,
    text: String,
    file: syn::File,
}

fn sources() -> Result<Vec<Source>, String> {
    let parse = |path: String| {
        let text = disk::read(root().join(&path))?;
        let file = syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?;
        Ok(Source { path, text, file })
    };
    files("rs")?.into_iter().map(parse).collect()
}

fn long_files(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for Source { path, text, .. } in sources {
        let lines = text.lines().count();
        if lines > MOST_LINES && !LONG.iter().any(|(long, _)| long == path) {
            problems.push(format!("{path} has {lines} lines, more than {MOST_LINES}"));
        }
    }
    problems.extend(stale(LONG, |long| {
        sources.iter().any(|source| source.path == long && source.text.lines().count() > MOST_LINES)
    }));
    problems
}

/// Exceptions that are no longer needed.
fn stale(list: &[(&str, &str)], is_needed: impl Fn(&str) -> bool) -> Vec<String> {
    let stale = list.iter().filter(|(entry, _)| !is_needed(entry));
    stale.map(|(entry, _)| format!("{entry} no longer needs an exception")).collect()
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string().contains("test"))
    })
}

/// The modules of a crate's `src` folder: name and source.
fn modules(sources: &[Source]) -> BTreeMap<String, BTreeMap<String, &Source>> {
    let mut crates = BTreeMap::<String, BTreeMap<String, &Source>>::new();
    for source in sources {
        let Some((folder, inside)) = source.path.split_once("/src/") else { continue };
        let name = inside.trim_end_matches(".rs").replace('/', "::");
        let name = match name.as_str() {
            "lib" | "main" | "mod" => "",
            name => name.strip_suffix("::mod").unwrap_or(name),
        };
        crates.entry(folder.to_owned()).or_default().insert(name.to_owned(), source);
    }
    crates
}

/// The paths within its crate that a module names.
struct Imports {
    module: String,
    found: BTreeSet<String>,
}

impl Imports {
    /// Records a path if it begins in this crate.
    fn note(&mut self, segments: &[String]) {
        let mut base = match segments.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super") => self.module.split("::").map(str::to_owned).collect(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                other => base.push(other.to_owned()),
            }
        }
        self.found.insert(base.join("::"));
    }

    fn note_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let mut path = before.to_vec();
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.note_tree(&path, &inner.tree);
            }
            syn::UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.note(&path);
            }
            syn::UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.note(&path);
            }
            syn::UseTree::Glob(_) => self.note(&path),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.note_tree(&path, tree)),
        }
    }
}

impl Visit<'_> for Imports {
    fn visit_item_mod(&mut self, module: &syn::ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.note_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&segments);
        syn::visit::visit_path(self, path);
    }
}

/// Groups of modules that import one another, directly or through others. A crate's root does
/// not count: it names all modules, and they use its re-exports.
fn cycles(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for (folder, modules) in modules(sources) {
        let mut arrows = BTreeMap::<&str, BTreeSet<&str>>::new();
        for (name, source) in modules.iter().filter(|(name, _)| !name.is_empty()) {
            let mut imports = Imports { module: name.clone(), found: BTreeSet::new() };
            imports.visit_file(&source.file);
            let targets = imports.found.iter().filter_map(|path| longest(path, &modules));
            arrows.insert(name, targets.filter(|target| target != name && !target.is_empty()).collect());
        }
        for name in arrows.keys() {
            let reached = reachable(name, &arrows);
            // Each group is reported once, by its first module.
            let group: Vec<&str> =
                reached.iter().copied().filter(|other| reachable(other, &arrows).contains(name)).collect();
            if group.contains(name) && group.first() == Some(name) {
                problems.push(format!("{folder}: {} import one another", group.join(", ")));
            }
        }
    }
    problems
}

/// The module that a path leads into.
fn longest<'a>(path: &str, modules: &'a BTreeMap<String, &Source>) -> Option<&'a str> {
    let mut path = path;
    loop {
        if let Some((name, _)) = modules.get_key_value(path) {
            return Some(name);
        }
        path = path.rsplit_once("::")?.0;
    }
}

fn reachable<'a>(from: &str, arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = arrows.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(arrows.get(module).into_iter().flatten().copied());
        }
    }
    reached
}

/// Structs by the number of their fields, without those of C.
#[derive(Default)]
struct Structs(Vec<(String, usize)>);

impl Visit<'_> for Structs {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.0.push((item.ident.to_string(), item.fields.len()));
    }
}

fn wide_structs(sources: &[Source]) -> Vec<String> {
    let mut wide = Vec::new();
    // C determines the fields of its types.
    for source in sources.iter().filter(|source| !source.path.starts_with("abi/src/")) {
        let mut structs = Structs::default();
        structs.visit_file(&source.file);
        let of = structs.0.into_iter().filter(|(_, fields)| *fields > MOST_FIELDS);
        wide.extend(of.map(|(name, fields)| (format!("{}: {name}", source.path), fields)));
    }
    let unexpected = wide.iter().filter(|(name, _)| !WIDE.iter().any(|(allowed, _)| allowed == name));
    let mut problems: Vec<String> =
        unexpected.map(|(name, fields)| format!("{name} has {fields} fields, more than {MOST_FIELDS}")).collect();
    problems.extend(stale(WIDE, |name| wide.iter().any(|(other, _)| other == name)));
    problems
}

/// The identifiers of a file.
#[derive(Default)]
struct Identifiers(BTreeSet<String>);

impl Visit<'_> for Identifiers {
    fn visit_ident(&mut self, ident: &proc_macro2::Ident) {
        self.0.insert(ident.to_string());
    }
}

fn given_up(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask/")) {
        let mut identifiers = Identifiers::default();
        identifiers.visit_file(&source.file);
        for (name, folder, term) in GIVEN_UP {
            if source.path.starts_with(folder) && identifiers.0.contains(*name) {
                problems.push(format!("{}: {name} is called {term}", source.path));
            }
        }
    }
    problems
}

/// Maximum columns of a comment; layouts of frames and records, links and examples may be wider.
const MOST_COLUMNS: usize = 100;

fn wide_comments(sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    for Source { path, text, .. } in sources {
        let mut is_example = false;
        for (number, line) in (1..).zip(text.lines()) {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            is_example ^= comment.contains("```");
            let is_free = is_example || ["·", "…", "]("].iter().any(|mark| comment.contains(mark));
            if line.chars().count() > MOST_COLUMNS && !is_free {
                problems.push(format!("{path}:{number}: a comment has more than {MOST_COLUMNS} columns"));
            }
        }
    }
    problems
}

/// Maximum number of steps of a walk in ARCHITECTURE.md.
const MOST_STEPS: usize = 7;

/// The walks of a message in ARCHITECTURE.md, down and up: numbered steps that name a file and a
/// function in it.
fn walk(text: &str, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let (mut walks, mut steps) = (0, 0);
    for line in text.lines() {
        let Some((number, rest)) = line.split_once(". `") else { continue };
        let Ok(number) = number.parse::<usize>() else { continue };
        let mut words = rest.split('`');
        let (Some(path), Some(" "), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        (walks, steps) = if number == 1 { (walks + 1, 1) } else { (walks, steps + 1) };
        if number != steps || steps > MOST_STEPS {
            problems.push(format!("step {number} of a walk: there are {steps}, at most {MOST_STEPS}"));
        }
        let file = sources.iter().find(|source| source.path == path);
        if !file.is_some_and(|source| source.text.contains(&format!("fn {name}"))) {
            problems.push(format!("step {number}: {path} has no function {name}"));
        }
    }
    if walks != 2 {
        problems.push(format!("{walks} walks instead of one down and one up"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), file: syn::parse_file(text).unwrap() }
    }

    #[test]
    fn modules_that_import_one_another_are_found() {
        let sources = [
            source("a/src/lib.rs", "mod one; mod two; mod three; pub use one::X;"),
            source("a/src/one.rs", "use crate::two::{Y, Z as W}; #[cfg(test)] mod tests { use crate::four::F; }"),
            source("a/src/two/mod.rs", "mod inner; fn f() { super::three::g() }"),
            source("a/src/two/inner.rs", "use crate::X;"),
            source("a/src/three.rs", "fn g() { crate::one::h::<u8>() }"),
            source("a/src/four.rs", "use crate::one::X;"),
        ];
        assert_eq!(cycles(&sources), ["a: one, three, two import one another"]);
        assert_eq!(cycles(&sources[..4]), [""; 0]);
    }

    #[test]
    fn abandoned_names_are_found_in_code_but_not_in_texts() {
        let of = |path, text| given_up(&[source(path, text)]);
        assert_eq!(of("engine/src/x.rs", "struct Label;"), ["engine/src/x.rs: Label is called MessageInfo"]);
        assert_eq!(of("tools/src/x.rs", "struct Label;"), [""; 0]);
        assert_eq!(of("engine/src/x.rs", "// Label\nconst A: &str = \"Label\";"), [""; 0]);
    }

    #[test]
    fn wide_comments_are_found_outside_of_layouts_and_examples() {
        let wide = "x".repeat(100);
        let of = |text: String| wide_comments(&[source("a.rs", &text)]).len();
        assert_eq!(of(format!("// {wide}\n/// {wide}\nfn f() {{}}")), 2);
        assert_eq!(of(format!("// {}\nconst A: &str = \"{wide}{wide}\";", &wide[..97])), 0);
        assert_eq!(of(format!("//! ```\n//! {wide}\n//! ```\n//! a · {wide}")), 0);
    }

    #[test]
    fn wide_structs_are_found() {
        let fields: String = (0..13).map(|at| format!("f{at}: u8,")).collect();
        let found = wide_structs(&[source("x/src/a.rs", &format!("struct Wide {{ {fields} }} struct Small;"))]);
        assert!(found.contains(&"x/src/a.rs: Wide has 13 fields, more than 12".to_owned()), "{found:?}");
    }

    #[test]
    fn walks_name_functions_that_exist() {
        let sources = [source("a/src/lib.rs", "fn one() {} fn two() {}")];
        let of = |text: &str| walk(text, &sources);
        let good = "1. `a/src/lib.rs` `one`: x\n2. `a/src/lib.rs` `two`: y\n\n1. `a/src/lib.rs` `two`: z\n";
        assert_eq!(of(good), [""; 0]);
        assert_eq!(of(&good.replace("`one`", "`three`")), ["step 1: a/src/lib.rs has no function three"]);
        assert_eq!(of("1. `a/src/lib.rs` `one`: x\n"), ["1 walks instead of one down and one up"]);
        assert_eq!(of(&good.replace("2. ", "3. ")).len(), 1);
    }
}
