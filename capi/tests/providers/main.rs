//! Loadable providers: `testing/providers/wrong.c`, which does everything wrong in turn, in folders
//! of its own, seen by `tests/c/loaded.c`.

mod calls;
mod place;
mod tools;

use ofi_harness::{Headers, Run, built, fabric};
use place::{Place, both, client, names, text, wrong};
use std::path::Path;

#[test]
fn a_loaded_provider_is_discovered_and_opened() {
    let place = Place::with(&["good.wonder.7.2.6"]);
    let list = place.ask(&["list", "2.6"]);
    assert_eq!(names(&list), ["built in", "wonder"]);
    assert!(list.contains("wonder 7 2.6 wrong domain max_group_id=0\n"), "{list}");
    assert_eq!(place.ask(&["list", "1.13", "0", "WONDER"]), "wonder 7 1.13 wrong domain max_group_id=0\n");
    assert_eq!(place.ask(&["open", "wonder"]), "open 2.1\n");
    assert_eq!(place.ask(&["open", "Wonder"]), "open 2.1\n");
    assert_eq!(place.ask(&["open", "tcp"]), "open 2.1\n");
    assert!(place.ask(&["names"]).contains("wonder\n"));
    let filtered = |name: &str, value: &str| names(&text(&place.run(&["list", "2.6"]).variable(name, value)));
    assert_eq!(filtered("FI_PROVIDER", "wonder"), ["wonder"]);
    assert_eq!(filtered("FI_PROVIDER", "^wonder"), ["built in"]);
    assert_eq!(filtered("FI_ADDR_FORMAT", "FI_SOCKADDR_IN"), ["built in", "wonder"]);
    // Names of domain and fabric are compared as a whole, ignoring case.
    assert_eq!(names(&place.ask(&["list", "2.6", "0", "", "Wrong Domain"])), ["wonder"]);
    assert_eq!(place.ask(&["list", "2.6", "0", "", "wrong"]), "No data available\n");
    assert_eq!(names(&place.ask(&["list", "2.6", "0", "", "", "WRONG fabric"])), ["wonder"]);
    // A hidden provider can still be opened.
    let hidden = place.run(&["open", "wonder"]).variable("FI_PROVIDER", "tcp");
    assert_eq!(text(&hidden), "open 2.1\n");
}

#[test]
fn a_provider_without_getinfo_or_for_an_older_interface_is_left_out() {
    let place = Place::with(&["good.old.1.1.13", "hook.hook.1.2.6", "good.new.1.2.6"]);
    let (list, log) = place.log(&["list", "1.14"]);
    assert_eq!(names(&list), ["built in", "new"]);
    assert!(log.contains("<warn> old is built for interface 1.13, older than the requested 1.14"), "{log}");
    assert_eq!(names(&place.ask(&["list", "1.13"])), ["built in", "old", "new"]);
    // It can be opened, and a hook has a name.
    assert_eq!(place.ask(&["open", "old"]), "open 2.1\n");
    assert!(place.ask(&["names"]).contains("hook\n"));
}

#[test]
fn registration_demands_a_name_a_fabric_call_and_interface_1_3() {
    let bad = [
        "name_null.a.1.2.6",
        "name_empty.a.1.2.6",
        "name_semicolon.a.1.2.6",
        "fabric_null.a.1.2.6",
        "good.a.1.1.2",
        "good.a.1.9.0",
    ];
    let place = Place::with(&bad);
    place.add(&wrong("wrong.so", &[], Headers::Ours), &["good.b.1.1.3"]);
    let (list, log) = place.log(&["list", "1.3"]);
    assert_eq!(names(&list), ["built in", "b"]);
    for (file, why) in bad.iter().zip([
        "its fi_provider has no name",
        "cannot be requested",
        "cannot be requested",
        "has no fabric call",
        "interface 1.2, older than 1.3",
        "interface 9.0",
    ]) {
        let line = log.lines().find(|line| line.contains(file)).unwrap_or_else(|| panic!("{file}: {log}"));
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn of_one_name_a_preferred_file_wins_then_the_newer_then_the_first() {
    let place = Place::with(&["good.a.1.2.6", "good.a.3.2.6", "good.a.2.2.6", "good.b.1.2.6"]);
    let path = |path: String| text(&place.run(&["list", "2.6", "0", "a"]).variable("FI_PROVIDER_PATH", path));
    let folder = place.0.path().display().to_string();
    assert!(path(folder.clone()).starts_with("a 3 "));
    let preferred = place.file("good.a.1.2.6").display().to_string();
    assert!(path(format!("{folder}:+{preferred}")).starts_with("a 1 "));
    assert!(path(format!("+{preferred}:{folder}")).starts_with("a 1 "));
    // The others stay hidden, with a reason.
    let (list, log) = place.log(&["list", "2.6"]);
    assert_eq!(names(&list), ["built in", "b", "a"]);
    assert_eq!(list.matches("a 3 ").count(), 1);
    assert!(log.contains("has its name a, in version 3.0"), "{log}");
    // Folders in the order of the list: with @ the first one wins, without it the newer version.
    let (old, new) = (Place::with(&["good.x.1.2.6"]), Place::with(&["good.x.2.2.6"]));
    let (old_folder, new_folder) = (old.0.path().display(), new.0.path().display());
    let version = |path: String| {
        let list = text(&old.run(&["list", "2.6", "0", "x"]).variable("FI_PROVIDER_PATH", path));
        list.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(version(format!("@{old_folder}:{new_folder}")), "1");
    assert_eq!(version(format!("{old_folder}:{new_folder}")), "2");
    assert_eq!(version(format!("@{new_folder}:{old_folder}")), "2");
}

#[test]
fn built_in_names_stay_unless_a_loaded_provider_is_preferred() {
    let place = Place::with(&["good.tcp.9.2.6", "good.udp.9.2.6"]);
    let loaded = |run: Run| {
        let list = text(&run);
        list.lines().filter(|line| line.contains("wrong domain")).map(|line| line[..3].to_owned()).collect::<Vec<_>>()
    };
    let list = || place.run(&["list", "2.6"]);
    assert!(loaded(list()).is_empty());
    assert_eq!(loaded(list().variable("FI_OFI_PREFER_LOADED", "udp")), ["udp"]);
    assert_eq!(loaded(list().variable("FI_OFI_PREFER_LOADED", "all")), ["udp", "tcp"]);
    // Each name is served by one provider; layers of ours stay over our core.
    let preferred = text(&list().variable("FI_OFI_PREFER_LOADED", "tcp"));
    assert_eq!(preferred.lines().filter(|line| line.starts_with("tcp ")).count(), 1, "{preferred}");
    assert!(preferred.contains("tcp;ofi_rxm ") && preferred.contains("udp "), "{preferred}");
    let path = format!("{}:+{}", place.0.path().display(), place.file("good.tcp.9.2.6").display());
    assert_eq!(loaded(list().variable("FI_PROVIDER_PATH", path)), ["tcp"]);
    let (_, log) = place.log(&["list", "2.6"]);
    assert!(log.contains("its name tcp is that of a built-in provider"), "{log}");
}

#[test]
fn without_a_path_known_names_and_the_default_folder_are_searched() {
    // A copy of the library in a folder of its own, so that its default folder is the test's.
    let place = Place::with(&[]);
    let provider = wrong("wrong.so", &[], Headers::Ours);
    let copy = |to: &str| {
        let to = place.0.path().join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(&provider, to).unwrap();
    };
    std::fs::create_dir(place.0.path().join("lib")).unwrap();
    std::fs::copy(fabric().file(), place.0.path().join("lib/libfabric.so.1")).unwrap();
    for file in
        ["lib/libfabric/good.a.1.2.6-fi.so", "lib/libfabric/good.z.1.2.6.fi.so", "lib/libfabric/good.c.1.2.6.so"]
    {
        copy(file);
    }
    // A file of a known name, whose provider takes its name from the ending.
    copy("elsewhere/libverbs-fi.so");
    copy("elsewhere/libunknown-fi.so");
    let search = format!("{0}/lib:{0}/elsewhere", place.0.path().display());
    let run = || place.run(&["list", "2.6"]).variable("LD_LIBRARY_PATH", &search).variable("FI_LOG_LEVEL", "info");
    for path in ["", "+/no/such/file.so"] {
        let (list, log) = both(&run().variable("FI_PROVIDER_PATH", path));
        assert_eq!(names(&list), ["built in", "so", "z", "a"], "{log}");
        assert!(!log.contains("libunknown"), "{log}");
    }
    let (list, _) = both(&run().variable("FI_PROVIDER_PATH", "/no/such/folder"));
    assert_eq!(names(&list), ["built in"]);
}

#[test]
fn a_file_that_does_everything_wrong_harms_only_itself() {
    let files = [
        ("load_abort", "it crashes (signal 6)"),
        ("load_exit", "it ends the process"),
        ("ini_null", "fi_prov_ini returns no provider"),
        ("ini_crash", "it crashes (signal 7)"),
        ("ini_exit", "it ends the process (exit 3)"),
        ("getinfo_crash", "it crashes (signal 11)"),
        ("getinfo_exit", "it ends the process (exit 0)"),
        ("getinfo_pointer", "it crashes (signal 11)"),
        ("cleanup_crash", "it crashes (signal 11)"),
    ];
    let file = |mode: &str| format!("{mode}.{mode}.1.2.6");
    let place = Place::with(&[]);
    let provider = wrong("wrong.so", &[], Headers::Ours);
    for (mode, _) in files {
        place.add(&provider, &[&file(mode)]);
    }
    place.add(&provider, &["good.good.1.2.6", "ini_asks.asks.1.2.6"]);
    place.add(&wrong("needs.so", &["-DWRONG_NEEDS"], Headers::Ours), &["needs"]);
    std::fs::write(place.file("text"), "this is not a library").unwrap();
    std::fs::write(place.file("empty"), "").unwrap();
    std::fs::create_dir(place.file("folder")).unwrap();
    let (list, log) = place.log(&["list", "2.6"]);
    assert_eq!(names(&list), ["built in", "asks", "good"], "{log}");
    let reason = |log: &str, file: &str, why: &str| {
        let line = log.lines().find(|line| line.contains("is not used") && line.contains(file));
        let line = line.unwrap_or_else(|| panic!("{file}: {log}"));
        assert!(line.contains(why), "{line}");
    };
    for (mode, why) in files {
        reason(&log, &file(mode), why);
    }
    for (name, why) in [
        ("needs-fi.so", "no_library_has_this"),
        ("text-fi.so", "file too short"),
        ("empty-fi.so", "file too short"),
        ("folder-fi.so", "folder-fi.so"),
    ] {
        reason(&log, name, why);
    }
    // What was found out is remembered: nothing is tried again, and nothing harmful is loaded.
    let (list, log) = place.log(&["list", "2.6"]);
    assert_eq!(names(&list), ["built in", "asks", "good"], "{log}");
    reason(&log, &file("ini_crash"), "remembers this until the file changes");
    // A changed file is tried again.
    let now = place.file(&file("ini_crash"));
    std::fs::remove_file(&now).unwrap();
    std::fs::write(&now, "another file").unwrap();
    let (_, log) = place.log(&["list", "2.6"]);
    reason(&log, &file("ini_crash"), "file too short");
}

#[test]
fn a_file_that_hangs_is_given_up() {
    let place = Place::with(&["load_loop.hang.1.2.6", "good.good.1.2.6"]);
    let run = place.run(&["list", "2.6"]).variable("FI_LOG_LEVEL", "info").idle();
    let (list, log) = both(&run);
    assert_eq!(names(&list), ["built in", "good"]);
    assert!(log.contains("it does not return within 10 s"), "{log}");
    // A loaded machine may have been the cause: the next process tries again. What is known stays.
    let kept = std::fs::read_to_string(place.0.path().join("cache/ofi/providers")).unwrap();
    assert!(kept.lines().count() == 1 && kept.ends_with("|\n"), "{kept}");
}

#[test]
fn what_a_file_prints_is_no_verdict() {
    // Files come last name first: what is tried after the one that prints has its verdict.
    let place = Place::with(&["load_prints.noisy.1.2.6", "ini_crash.bad.1.2.6", "good.good.1.2.6"]);
    let (list, log) = place.log(&["list", "2.6", "0", "good"]);
    assert!(list.contains("good 1 2.6 "), "{list}: {log}");
    assert!(log.contains("it crashes (signal 7)") && !log.contains("without a trial"), "{log}");
}

#[test]
fn a_wrong_answer_is_a_reason_and_hides_no_other() {
    let files = [
        ("getinfo_error", "its fi_getinfo returns -5"),
        ("getinfo_positive", "its fi_getinfo returns 5"),
        ("getinfo_huge", "its fi_getinfo returns -2147483648"),
        ("getinfo_circle", "its fi_getinfo returns a list without an end"),
        ("getinfo_parts", "its fi_getinfo returns an info without ep_attr"),
    ];
    let place = Place::with(&["good.good.1.2.6", "getinfo_nothing.nothing.1.2.6"]);
    for (mode, _) in files {
        place.add(&wrong("wrong.so", &[], Headers::Ours), &[&format!("{mode}.{mode}.1.2.6")]);
    }
    let (list, log) = place.log(&["list", "2.6"]);
    assert_eq!(names(&list), ["built in", "good"]);
    for (mode, why) in files {
        assert!(log.contains(&format!("{mode}: {why}")), "{mode}: {log}");
    }
    // If no provider matches, the reasons say so.
    let (list, log) = place.log(&["list", "2.6", "0", "nothing"]);
    assert_eq!(list, "No data available\n");
    assert!(log.contains("nothing (loaded): fi_getinfo: it returns no info"), "{log}");
}

#[test]
fn a_fabric_call_that_lies_is_an_error() {
    let files = ["error", "positive", "nothing", "class", "ops"].map(|mode| format!("fabric_{mode}.{mode}.1.2.6"));
    let place = Place::with(&files.each_ref().map(String::as_str));
    assert_eq!(place.ask(&["open", "error"]), "Permission denied\n");
    for name in ["positive", "nothing", "class", "ops"] {
        assert_eq!(place.ask(&["open", name]), "Unspecified error\n", "{name}");
    }
}

#[test]
fn infos_are_read_in_the_layout_of_the_provider_s_release() {
    let place = Place::with(&["short.short.1.1.13", "getinfo_nic.nic.1.2.6", "getinfo_name.mimic.1.2.6"]);
    let list = place.ask(&["list", "1.13"]);
    // What lies behind the structures of 1.13 is not the provider's.
    assert!(list.contains("short 1 1.13 wrong domain max_group_id=0\n"), "{list}");
    // A nic without a table is left out; a name that is not the provider's own becomes a layer's.
    assert!(list.contains("nic 1 1.13 "), "{list}");
    assert!(list.contains("tcp;mimic 1 1.13 "), "{list}");
}

#[test]
fn layers_of_theirs_are_used_over_providers_of_theirs() {
    let place = Place::with(&[
        "layer.ofi_layer.1.2.6",
        "good.usnic.1.2.6",
        "good.net.1.2.6",
        "good.sockets.1.2.6",
        "good.tcp.1.2.6",
    ]);
    let list = |arguments: &[&str]| names(&place.ask(arguments));
    // A fast network and its layers come first, and nothing of theirs is over ours.
    let all = ["usnic", "built in", "sockets", "net", "net;ofi_layer", "usnic;ofi_layer"];
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    let found = list(&["list", "2.6"]);
    assert_eq!(found[..2], all[..2]);
    assert_eq!(sorted(found), sorted(all.map(str::to_owned).into()));
    assert_eq!(list(&["list", "2.6", "0", "usnic"]), ["usnic", "usnic;ofi_layer"]);
    assert_eq!(list(&["list", "2.6", "0", "usnic;ofi_layer"]), ["usnic;ofi_layer"]);
    assert_eq!(list(&["list", "2.6", "0", "ofi_layer;usnic"]), ["usnic;ofi_layer"]);
    assert_eq!(sorted(list(&["list", "2.6", "0", "ofi_layer"])), ["net;ofi_layer", "usnic;ofi_layer"]);
    // Some cores stand alone, unless a request names the layer too.
    assert_eq!(list(&["list", "2.6", "0", "sockets"]), ["sockets"]);
    assert_eq!(list(&["list", "2.6", "0", "sockets;ofi_layer"]), ["sockets;ofi_layer"]);
    assert_eq!(sorted(list(&["list", "2.6", "0", "usnic;^ofi_layer"])), ["usnic"]);
    let filtered = |value: &str| names(&text(&place.run(&["list", "2.6"]).variable("FI_PROVIDER", value)));
    assert_eq!(filtered("usnic;ofi_layer"), ["usnic;ofi_layer"]);
    assert_eq!(filtered("usnic"), ["usnic", "usnic;ofi_layer"]);
    assert_eq!(filtered("ofi_layer"), ["No"]);
    // Internal flags: cores alone, or what offloads (nothing here).
    let (core, offload) = ((1u64 << 59).to_string(), (1u64 << 61).to_string());
    assert_eq!(list(&["list", "2.6", &core]), ["usnic", "net"]);
    assert_eq!(list(&["list", "2.6", &core, "sockets;^ofi_layer"]), ["sockets"]);
    assert_eq!(place.ask(&["list", "2.6", &offload]), "No data available\n");
    // Opened by their names, also above.
    for name in ["usnic", "usnic;ofi_layer", "ofi_layer"] {
        assert_eq!(place.ask(&["open", name]), "open 2.1\n", "{name}");
    }
    // An application without loaded providers gets no internal flag.
    assert_eq!(Place::with(&[]).ask(&["list", "2.6", &core]), "Flags not supported\n");
}

#[test]
fn parameters_and_the_log_serve_loaded_providers() {
    let place = Place::with(&["good.tuned.1.2.6", "good.tcp.1.2.6"]);
    let run = place.run(&["list", "2.6"]).variable("FI_LOG_LEVEL", "warn").variable("FI_TUNED_TEXT", "some text");
    let run = run.variable("FI_TUNED_NUMBER", "-0x10").variable("FI_TUNED_FLAG", "yes");
    let (_, log) = both(&run.variable("FI_TUNED_SIZE", "5000000000").variable("FI_TCP_IFACE", "12"));
    assert!(log.contains(":tuned:core:use_the_library():"), "{log}");
    assert!(log.contains("text some text") && log.contains("number -16 flag 1 size 5000000000"), "{log}");
    // A variable with another type for a built-in provider of the name.
    assert!(log.contains("iface 12"), "{log}");
}

#[test]
fn providers_clean_up_when_they_are_not_used_and_at_the_end() {
    let place = Place::with(&["good.used.1.2.6", "good.twice.1.2.6", "good.twice.2.2.6"]);
    let (_, log) = both(&place.run(&["list", "2.6"]).variable("WRONG_SAYS", "1"));
    let ended: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("cleanup of ")).collect();
    assert_eq!(ended.iter().filter(|name| **name == "twice").count(), 2, "{log}");
    assert_eq!(ended.iter().filter(|name| **name == "used").count(), 1, "{log}");
}

#[test]
fn providers_clean_up_after_the_application_s_last_function() {
    let place = Place::with(&["good.late.1.2.6"]);
    let (_, log) = both(&place.run(&["atexit"]).variable("WRONG_SAYS", "1"));
    assert_eq!(log, "closed\ncleanup of late\n");
}

#[test]
fn a_provider_that_is_not_listed_is_not_asked() {
    let place = Place::with(&["getinfo_error.error.1.2.6", "good.good.1.2.6"]);
    let log = |list: &str| {
        both(&place.run(&["list", "2.6"]).variable("FI_LOG_LEVEL", "info").variable("FI_PROVIDER", list)).1
    };
    assert!(log("error").contains("error: its fi_getinfo returns -5"));
    for list in ["good", "^error", "good,tcp"] {
        assert!(!log(list).contains("its fi_getinfo returns"), "{list}");
    }
}

#[test]
fn a_library_under_two_entries_is_loaded_once() {
    let place = Place::with(&["good.one.1.2.6"]);
    let other = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(place.file("good.one.1.2.6"), other.path().join("soft-fi.so")).unwrap();
    std::fs::hard_link(place.file("good.one.1.2.6"), other.path().join("hard-fi.so")).unwrap();
    let (folder, file) = (place.0.path().display(), place.file("good.one.1.2.6").display().to_string());
    for path in
        [format!("{folder}:+{file}"), format!("+{file}:{folder}"), format!("{folder}:{}", other.path().display())]
    {
        let run = place.run(&["list", "2.6"]).variable("WRONG_SAYS", "1").variable("FI_PROVIDER_PATH", &path);
        let (list, log) = both(&run);
        assert_eq!(list.matches("one 1 ").count(), 1, "{path}: {list}");
        assert_eq!(log.matches("cleanup of").count(), 1, "{path}: {log}");
    }
}

#[test]
fn loading_survives_threads_forks_and_leaves_no_process() {
    let place = || Place::with(&["good.good.1.2.6", "ini_crash.bad.1.2.6", "layer.ofi_layer.1.2.6"]);
    assert_eq!(place().ask(&["threads"]), "asked\n");
    assert_eq!(place().ask(&["fork"]), "asked\n");
}

#[test]
fn an_application_does_not_notice_the_helper() {
    let place = Place::with(&["load_looks.looks.1.2.6", "ini_crash.bad.1.2.6"]);
    assert_eq!(place.ask(&["children"]), "none\n");
    let (list, log) = place.log(&["list", "2.6", "0", "looks"]);
    assert!(list.contains("looks 1 2.6 "), "{list}: {log}");
    // An application that ignores SIGCHLD changes no verdict.
    let place = Place::with(&["load_looks.looks.1.2.6", "ini_crash.bad.1.2.6"]);
    let (list, log) = place.log(&["ignoring", "2.6", "0", "looks"]);
    assert!(list.contains("looks 1 2.6 ") && log.contains("it crashes (signal 7)"), "{list}: {log}");
}

#[test]
fn a_file_that_kills_its_group_ends_only_the_helper() {
    let place = Place::with(&["load_group.group.1.2.6", "good.good.1.2.6"]);
    let (list, log) = place.log(&["list", "2.6"]);
    assert_eq!(names(&list)[0], "built in", "{list}: {log}");
    assert!(log.contains("load_group.group.1.2.6-fi.so is not used: it is not tried"), "{log}");
}

#[test]
fn the_helper_ends_with_the_application() {
    let place = Place::with(&["load_loop.hang.1.2.6"]);
    let number = place.0.path().join("number");
    let run = place.run(&["list", "2.6"]).variable("WRONG_PID", &number).command();
    // Without the time limit's process in between.
    let mut client = std::process::Command::new(client());
    client.args(["list", "2.6"]).envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut client = client.spawn().unwrap();
    let begin = ofi_os::clock::now();
    let pid = loop {
        let text = std::fs::read_to_string(&number).unwrap_or_default();
        if let Some(pid) = text.strip_suffix('\n') {
            break pid.to_owned();
        }
        assert!(
            ofi_os::clock::now().since(begin).as_secs() < 60 && client.try_wait().unwrap().is_none(),
            "no trial begins"
        );
        std::thread::yield_now();
    };
    client.kill().unwrap();
    client.wait().unwrap();
    // A process that has ended may wait for the system to forget it.
    let lives = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let begin = ofi_os::clock::now();
    while lives() {
        // The trial itself would last 10 s.
        assert!(ofi_os::clock::now().since(begin).as_secs() < 8, "the trial goes on without its application");
        std::thread::yield_now();
    }
}

#[test]
fn a_file_may_ask_for_providers_but_not_wait_for_a_thread_that_does() {
    let place = Place::with(&["load_asks.asks.1.2.6", "load_waits.waits.1.2.6"]);
    let run = place.run(&["list", "2.6"]).variable("FI_LOG_LEVEL", "info").idle();
    let (list, log) = both(&run);
    assert_eq!(names(&list), ["built in", "asks"], "{log}");
    assert!(log.contains("it waits for a thread that asks for providers"), "{log}");
}

#[test]
fn providers_built_with_older_headers_work() {
    if !Path::new("/usr/include/rdma/providers/fi_prov.h").exists() {
        ofi_harness::missing("the headers of libfabric-dev");
        return;
    }
    let place = Place::with(&[]);
    place.add(&wrong("older.so", &[], Headers::Installed), &["good.older.1.1.17"]);
    assert_eq!(names(&place.ask(&["list", "1.17", "0", "older"])), ["older"]);
    assert_eq!(place.ask(&["list", "1.18", "0", "older"]), "No data available\n");
    assert_eq!(place.ask(&["open", "older"]), "open 2.1\n");
}

/// A run of `client` in a folder, with paths that begin there.
fn in_folder(folder: &Path, run: Run) -> Run {
    let text = format!("cd '{}' && exec \"$@\"", folder.display());
    run.inside(["sh", "-c", &text, "sh"])
}

#[test]
fn relative_paths_begin_at_the_working_directory() {
    let place = Place::with(&["good.near.1.2.6"]);
    let folder = place.0.path().file_name().unwrap().to_string_lossy().into_owned();
    let above = place.0.path().parent().unwrap();
    for path in [folder.clone(), format!("./{folder}"), format!("/no/such/folder:{folder}/")] {
        let run = place.run(&["list", "2.6", "0", "near"]).variable("FI_PROVIDER_PATH", &path);
        let (list, log) = both(&in_folder(above, run.variable("FI_LOG_LEVEL", "info")));
        assert!(list.contains("near 1 2.6 "), "{path}: {list}{log}");
    }
    let run = place.run(&["list", "2.6"]).variable("FI_PROVIDER_PATH", format!("+{folder}/good.near.1.2.6-fi.so"));
    let (list, log) = both(&in_folder(above, run.variable("FI_LOG_LEVEL", "info")));
    assert!(log.contains("-fi.so is not used: its path in FI_PROVIDER_PATH is relative"), "{log}");
    assert_eq!(names(&list), ["built in"]);
    // The library's own path, which the trial needs, may be relative too.
    let library = fabric().folder();
    let near = library.file_name().unwrap();
    let run = place.run(&["list", "2.6", "0", "near"]).variable("LD_LIBRARY_PATH", near);
    let (list, log) = both(&in_folder(library.parent().unwrap(), run.variable("FI_LOG_LEVEL", "info")));
    assert!(list.contains("near 1 2.6 ") && !log.contains("without a trial"), "{list}{log}");
    let run = Run::new(built("fi_info"), 60).variable("LD_LIBRARY_PATH", near).arguments(["-l"]);
    let run = run.variable("FI_PROVIDER_PATH", place.0.path()).variable("XDG_CACHE_HOME", place.0.path());
    let (list, said) = both(&in_folder(library.parent().unwrap(), run));
    assert!(list.contains("near:") && said.is_empty(), "{list}{said}");
}
