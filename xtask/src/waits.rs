//! Loads that wait for stores of a moment ago. A processor hands a load the bytes of a store that
//! has not left its store buffer, if one store wrote all of them. A load of bytes that several
//! stores wrote, such as one of 16 bytes after two of 8, waits until they have left the buffer, and
//! all earlier ones before them, those to a line that the peer's core holds among them. Such a wait
//! costs as much as a hundred instructions, and compilers add them wherever they join the moves of
//! two words: valgrind shows each load and store of the built library.

use crate::bench;
use crate::disk;
use crate::run::{Outcome, output, within};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Command;

/// Stores that may still be in a store buffer: processors have room for 56 to 112.
const STORES: usize = 56;
/// Turns that are traced, of an operation in each direction.
const TURNS: u64 = 100;
/// What happens in three quarters of a pattern's calls belongs to it. What happens by the clock,
/// such as a probe of whether the peer lives, happens between more of them the longer a machine
/// takes for a trace.
const OFTEN: u64 = 2 * TURNS * 3 / 4;
/// Seconds that a trace may take; most take one or two.
const MOST_SECONDS: u32 = 120;

/// Patterns of `benches/near.c` with their sizes, and how many such loads each may have. Three of
/// writes move their entry among the operations that the peer has yet to acknowledge, when their
/// line is out; one moves the completion. Most of a fetch-add's move its entry when its request is
/// out, and again when that is answered: there are 25, and as many as 32 where the C library moves
/// in pieces of 16 bytes.
const MOST: [(&str, &str, usize); 5] =
    [("tagged", "8", 0), ("tagged", "64", 0), ("inject-write", "8", 3), ("write", "8", 4), ("fetch-add", "8", 32)];

/// Addresses of a load and of the store before it, as offsets in the library.
type Pair = (u64, u64);

#[derive(Debug)]
struct Store {
    address: u64,
    len: u64,
    by: u64,
}

/// Finds the loads in a trace, in the format of valgrind's `lackey --trace-mem=yes`.
#[derive(Debug, Default)]
struct Finder {
    recent: VecDeque<Store>,
    /// The current instruction.
    at: u64,
    /// The word whose store begins the first turn: all before is forgotten.
    begin: u64,
    /// How often each was found.
    found: BTreeMap<Pair, u64>,
}

impl Finder {
    /// Takes a line of the trace; others that valgrind prints are nothing to it.
    fn take(&mut self, line: &str) {
        let Some((kind, rest)) = line.split_at_checked(3) else { return };
        let Some((address, len)) = rest.trim().split_once(',') else { return };
        let (Ok(address), Ok(len)) = (u64::from_str_radix(address, 16), len.parse()) else { return };
        match kind {
            "I  " => self.at = address,
            " L " => self.load(address, len),
            " S " => self.store(address, len),
            " M " => {
                self.load(address, len);
                self.store(address, len);
            }
            _ => {}
        }
    }

    fn load(&mut self, address: u64, len: u64) {
        let end = address + len;
        let last = self.recent.iter().rev().find(|store| store.address < end && store.address + store.len > address);
        if let Some(store) = last
            && (store.address > address || store.address + store.len < end)
        {
            *self.found.entry((self.at, store.by)).or_default() += 1;
        }
    }

    fn store(&mut self, address: u64, len: u64) {
        if address == self.begin {
            self.found.clear();
        }
        if self.recent.len() == STORES {
            self.recent.pop_front();
        }
        self.recent.push_back(Store { address, len, by: self.at });
    }
}

/// Enforces the limits.
pub(crate) fn waits() -> Outcome {
    let work = disk::target().join("near");
    disk::make(&work)?;
    let (folder, program) = bench::build_near(&work)?;
    let library = folder.join("libfabric.so.1");
    for (pattern, size, most) in MOST {
        let log = work.join("trace");
        let mut valgrind = within(MOST_SECONDS, "valgrind");
        valgrind.args(["--tool=lackey", "--trace-mem=yes", &format!("--log-file={}", log.display())]);
        valgrind.arg(&program).args([pattern, size, &TURNS.to_string()]);
        // No other provider looks for its devices.
        valgrind.env("LD_LIBRARY_PATH", &folder).env("FI_PROVIDER", "shm");
        let said = output(&mut valgrind).map_err(|error| format!("{error} (needs valgrind)"))?;
        let mut addresses =
            said.split_whitespace().filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let (Some(base), Some(begin)) = (addresses.next(), addresses.next()) else {
            return Err(format!("near printed {said:?}"));
        };
        let mut finder = Finder { begin, ..Finder::default() };
        let failed = |error| format!("{}: {error}", log.display());
        for line in BufReader::new(File::open(&log).map_err(failed)?).lines() {
            finder.take(&line.map_err(failed)?);
        }
        std::fs::remove_file(&log).map_err(failed)?;
        let found: Vec<Pair> = finder
            .found
            .into_iter()
            .filter(|(_, count)| *count >= OFTEN)
            .map(|((load, store), _)| (load.wrapping_sub(base), store.wrapping_sub(base)))
            .collect();
        let what = format!("{pattern} of {size} bytes over shm: {} loads wait for stores of a moment ago", found.len());
        println!("{what} (limit {most})");
        if found.len() > most {
            for (load, store) in found {
                let mut names = Command::new("addr2line");
                names.args(["-Cfipe"]).arg(&library).args([format!("{load:#x}"), format!("{store:#x}")]);
                println!("{}", output(&mut names).unwrap_or_else(|_| format!("at {load:#x}, of {store:#x}")));
            }
            return Err(format!("{what}: the limit is {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(trace: &str) -> Vec<(Pair, u64)> {
        let mut finder = Finder::default();
        trace.lines().for_each(|line| finder.take(line));
        finder.found.into_iter().collect()
    }

    #[test]
    fn a_load_of_two_stores_waits() {
        let two = "==1== Lackey\nI  0a,4\n S 100,8\nI  0b,4\n S 108,8\nI  0c,4\n L 100,16\n";
        assert_eq!(found(two), [((0x0c, 0x0b), 1)]);
        assert_eq!(found(&two.replace("L 100,16", "L 108,8")), []);
        assert_eq!(found(&two.replace("L 100,16", "L 106,4")), [((0x0c, 0x0b), 1)]);
    }

    #[test]
    fn what_came_before_the_first_turn_is_forgotten() {
        let mut finder = Finder { begin: 0x500, ..Finder::default() };
        for line in ["I  0a,4", " S 100,8", " S 108,8", " L 100,16", " S 500,8", "I  0b,4", " L 100,16"] {
            finder.take(line);
        }
        assert_eq!(finder.found.into_iter().collect::<Vec<_>>(), [((0x0b, 0x0a), 1)]);
    }

    #[test]
    fn a_load_within_one_store_does_not_wait_nor_does_one_of_long_ago() {
        assert_eq!(found("I  0a,4\n S 100,16\nI  0b,4\n L 108,8\n M 100,8\n"), []);
        let wide = "I  0a,4\n S 100,8\n S 108,8\nI  0b,4\n";
        let long_ago = format!("{wide}{}{}", " S 200,8\n".repeat(STORES), " L 100,16\n");
        assert_eq!(found(&long_ago), []);
        let shortly_ago = format!("{wide}{}{}", " S 200,8\n".repeat(STORES - 1), " L 100,16\n");
        assert_eq!(found(&shortly_ago), [((0x0b, 0x0a), 1)]);
    }
}
