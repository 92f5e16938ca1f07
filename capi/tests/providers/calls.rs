//! The system calls that discovery makes.

use crate::place::{Place, both};
use std::path::Path;

/// The system calls of the first two calls of fi_getinfo(3), with their arguments, and all of the
/// process's calls that start programs or threads.
struct Calls {
    of_getinfo: [Vec<String>; 2],
    starts: usize,
}

/// `None` without strace.
fn calls(place: &Place, path: Option<&Path>) -> Option<Calls> {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        ofi_harness::missing("strace");
        return None;
    }
    let file = place.0.path().join("calls");
    let mut run = place.run(&["calls"]).inside(["strace", "-f", "-s", "4096", "-o", &file.to_string_lossy()]);
    if let Some(path) = path {
        run = run.variable("FI_PROVIDER_PATH", path);
    }
    both(&run);
    let text = std::fs::read_to_string(&file).unwrap();
    // Each line begins with the process's number.
    let all: Vec<String> = text.lines().filter_map(|line| Some(line.split_once(' ')?.1.trim().to_owned())).collect();
    let marks: Vec<usize> = (0..all.len()).filter(|index| all[*index].starts_with("getppid")).collect();
    assert_eq!(marks.len(), 3, "{text}");
    let between = |index: usize| all[marks[index] + 1..marks[index + 1]].to_vec();
    let starts = |line: &&String| ["execve", "clone", "fork", "vfork"].iter().any(|call| line.starts_with(call));
    // The first one is the program's own.
    Some(Calls { of_getinfo: [between(0), between(1)], starts: all.iter().filter(starts).count() - 1 })
}

/// System calls that a provider folder may add to the first fi_getinfo of a process, if it has no
/// file: the folder is opened, read to its end and closed.
const OF_A_FOLDER: usize = 6;
/// The same without FI_PROVIDER_PATH: a file for each known name, in each folder of the system.
const OF_THE_SYSTEM_S_FOLDERS: usize = 120;

#[test]
fn a_folder_without_files_costs_a_few_system_calls_and_loads_nothing() {
    let place = Place::with(&[]);
    let folder = place.0.path().join("providers");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("README"), "no provider").unwrap();
    let nowhere = Path::new("/no/such/folder");
    let (Some(none), Some(empty)) = (calls(&place, Some(nowhere)), calls(&place, Some(&folder))) else { return };
    let lens = |calls: &Calls| calls.of_getinfo.each_ref().map(Vec::len);
    let (without, with) = (lens(&none), lens(&empty));
    assert!(with[0] <= without[0] + OF_A_FOLDER, "{without:?} {with:?}: {:#?}", empty.of_getinfo[0]);
    assert_eq!(with[1], without[1], "a later call looks for files again: {:#?}", empty.of_getinfo[1]);
    for calls in [&none, &empty] {
        assert_eq!(calls.starts, 0);
        let opened = calls.of_getinfo.iter().flatten().filter(|line| line.contains("-fi.so"));
        assert_eq!(opened.collect::<Vec<_>>(), Vec::<&String>::new());
    }
    // Without the variable: known names in the folders of the system.
    let default = calls(&place, Some(Path::new(""))).unwrap();
    let most = without[0] + OF_THE_SYSTEM_S_FOLDERS;
    assert!(lens(&default)[0] <= most, "{most} {:?}: {:#?}", lens(&default), default.of_getinfo[0]);
    assert_eq!((lens(&default)[1], default.starts), (without[1], 0));
}

#[test]
fn a_known_file_is_loaded_without_a_helper_and_once() {
    let place = Place::with(&["good.known.1.2.6"]);
    place.ask(&["list", "2.6"]);
    let Some(known) = calls(&place, None) else { return };
    assert_eq!(known.starts, 0, "{:#?}", known.of_getinfo[0]);
    let touches = |index: usize| known.of_getinfo[index].iter().filter(|line| line.contains("-fi.so")).count();
    assert!(touches(0) > 0, "{:#?}", known.of_getinfo[0]);
    assert_eq!(touches(1), 0, "{:#?}", known.of_getinfo[1]);
}
