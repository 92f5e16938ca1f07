//! `fi_info`, which asks the installed library.

use crate::place::{Place, both, wrong};
use ofi_harness::{Headers, Run, built, fabric};
use std::path::Path;

#[test]
fn fi_info_says_where_providers_come_from() {
    let place = Place::with(&["good.usnic.7.2.6", "good.wonder.3.1.13", "ini_crash.bad.1.2.6", "good.udp.9.2.6"]);
    place.add(&wrong("wrong.so", &[], Headers::Ours), &["load_prints.noisy.4.2.6"]);
    let info = |arguments: &[&str]| {
        let run = Run::new(built("fi_info"), 60).on(fabric()).arguments(arguments);
        let run = run.variable("FI_PROVIDER_PATH", place.0.path()).variable("XDG_CACHE_HOME", place.0.path());
        both(&run.variable("FI_OFI_PREFER_LOADED", "udp"))
    };
    let (list, said) = info(&["--explain"]);
    let providers: Vec<&str> = list.lines().filter_map(|line| line.strip_prefix("provider: ")).collect();
    assert_eq!(providers[0], "usnic");
    assert_eq!(providers.iter().filter(|name| **name == "udp").count(), 1);
    assert!(providers.contains(&"tcp") && !providers.contains(&"wonder"), "{list}");
    assert!(list.contains("provider: usnic\n    fabric: wrong fabric\n    domain: wrong domain\n    version: 7.0\n"));
    let usnic = format!("  usnic 7.0: {}, built for interface 2.6\n", place.file("good.usnic.7.2.6").display());
    for line in [
        usnic.as_str(),
        "  tcp 206.0: built in\n",
        "  noisy 4.0: ",
        "wonder (loaded): version: wonder is built for interface 1.13, older than the requested 2.6\n",
        "ini_crash.bad.1.2.6-fi.so is not used: it crashes (signal 7)",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("  udp 206.0"), "{said}");
    let (json, _) = info(&["--json", "--explain", "-p", "usnic"]);
    assert!(json.contains("\"origin\": \"loaded\"") && json.contains("good.usnic.7.2.6-fi.so"), "{json}");
    assert_eq!(info(&["-p", "usnic"]).0.matches("provider: ").count(), 1);
    assert!(info(&["-p", "usnic", "-v"]).0.contains("prov_name: usnic\n"));
    assert!(info(&["-l"]).0.contains("wonder:\n    version: 3.0\n"));
}

/// `fi_info` with these arguments, beside that library.
fn fi_info_beside(library: &Path, place: &Place, arguments: &[&str]) -> (String, String) {
    let run = Run::new(built("fi_info"), 60).arguments(arguments).variable("LD_LIBRARY_PATH", library);
    both(&run.variable("FI_PROVIDER_PATH", place.0.path()).variable("XDG_CACHE_HOME", place.0.path()))
}

#[test]
fn fi_info_lists_the_parameters_of_loaded_providers() {
    let place = Place::with(&["good.tuned.1.2.6"]);
    let run = Run::new(built("fi_info"), 60).on(fabric()).variable("FI_TUNED_NUMBER", "77");
    let run = run.variable("FI_PROVIDER_PATH", place.0.path()).variable("XDG_CACHE_HOME", place.0.path());
    let (list, said) = both(&run.argument("-e"));
    assert!(list.contains("# FI_TUNED_NUMBER: Integer\n# tuned: A number\nFI_TUNED_NUMBER=77\n"), "{list}{said}");
    assert!(list.contains("# FI_TUNED_TEXT: String\n# tuned: A text of this provider\n"), "{list}");
    assert!(list.contains("# FI_PROVIDER_PATH: String\n") && said.is_empty(), "{said}");
    let (list, _) = fi_info_beside(fabric().folder(), &place, &["-g", "tuned", "--json"]);
    assert!(list.contains("\"FI_TUNED_SIZE\"") && !list.contains("FI_PROVIDER_PATH"), "{list}");
}

#[test]
fn another_library_in_place_of_ours_is_named_and_hides_nothing() {
    let place = Place::with(&["good.tuned.1.2.6"]);
    let other = tempfile::tempdir().unwrap();
    let library = other.path().join("libfabric.so.1");
    for (content, why) in [
        (b"no library".to_vec(), "cannot be read: failed to fill whole buffer"),
        (std::fs::read("/etc/passwd").unwrap(), "it is no 64-bit shared library"),
        (std::fs::read("/bin/true").unwrap(), "ends with code 0 before its answer is complete"),
        (std::fs::read("/bin/echo").unwrap(), "it prints something else"),
    ] {
        std::fs::write(&library, content).unwrap();
        let (list, said) = fi_info_beside(other.path(), &place, &["-l"]);
        let begin = format!("note: providers that programs load are not shown: {}", library.display());
        assert!(said.starts_with(&begin) && said.contains(why) && said.lines().count() == 1, "{why}: {said}");
        assert!(list.contains("tcp:") && !list.contains("tuned"), "{list}");
    }
    let debian = Path::new("/usr/lib/x86_64-linux-gnu/libfabric.so.1");
    if !debian.exists() {
        ofi_harness::missing("libfabric.so.1 of Debian (package libfabric1)");
        return;
    }
    std::fs::copy(debian, &library).unwrap();
    let (list, said) = fi_info_beside(other.path(), &place, &["-l"]);
    assert!(said.contains("is not the library of this tool (it cannot be run)"), "{said}");
    assert!(list.contains("tcp:"), "{list}");
}
