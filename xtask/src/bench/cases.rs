//! The list of cases. Dimensions that interact are crossed; every value of every dimension occurs
//! at least once.

use crate::bench::case::{
    Buffers, Case, Completion, Counted, Endpoint, Interface, KIB, Locking, MIB, Pattern, Progress, Provider, Section,
    Wait,
};

const WITHIN_AND_ACROSS: [Provider; 2] = [Provider::Tcp, Provider::Shm];
/// Milliseconds of one of several turns ([`Case::turns`]).
const TURN: u32 = 100;
const PAYLOADS: [Buffers; 3] = [Buffers::Kept, Buffers::Written, Buffers::Read];

/// All cases, in the order of the table.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    half_round_trips(&mut cases);
    rates(&mut cases);
    streams(&mut cases);
    one_sided(&mut cases);
    waiting(&mut cases);
    peers_and_threads(&mut cases);
    processes(&mut cases);
    collectives(&mut cases);
    programs(&mut cases);
    connections_and_memory(&mut cases);
    scale(&mut cases);
    counts(&mut cases);
    cases
}

fn half_round_trips(cases: &mut Vec<Case>) {
    let new = |provider, size| Case::new(Section::HalfRoundTrips, provider, Pattern::Latency, size);
    for provider in WITHIN_AND_ACROSS {
        for buffers in PAYLOADS {
            for size in [8, 64, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB] {
                cases.push(Case { buffers, ..new(provider, size) });
            }
        }
        cases.push(Case { buffers: Buffers::Cold, ..new(provider, MIB) });
        for size in [4 * KIB, 64 * KIB, MIB] {
            cases.push(Case { buffers: Buffers::Heap, ..new(provider, size) });
        }
        cases.push(Case { locking: Locking::Domain, batch: 16, ..new(provider, 8) });
        cases.push(Case { completion: Completion::Inject, ..new(provider, 8) });
        cases.push(Case { completion: Completion::Selective, ..new(provider, 8) });
        for size in [64, 64 * KIB, MIB] {
            cases.push(Case { endpoint: Endpoint::Msg, ..new(provider, size) });
        }
    }
    for provider in WITHIN_AND_ACROSS {
        cases.push(Case { interface: Interface::Futures, milliseconds: TURN, ..new(provider, 64) });
    }
    cases.push(new(Provider::Rxm, 8));
    cases.push(new(Provider::Rxm, MIB));
    for size in [8, 64, KIB] {
        cases.push(new(Provider::Udp, size));
    }
    cases.push(Case { completion: Completion::Inject, ..new(Provider::Udp, 8) });
}

fn rates(cases: &mut Vec<Case>) {
    let new = |provider, pattern, size| Case::new(Section::Rates, provider, pattern, size);
    for provider in WITHIN_AND_ACROSS {
        let plain = new(provider, Pattern::Rate, 8);
        for window in [1, 16] {
            cases.push(Case { window, ..plain });
        }
        for locking in [Locking::Safe, Locking::Domain] {
            for batch in [1, 16] {
                for completion in [Completion::Send, Completion::Inject, Completion::Selective] {
                    cases.push(Case { locking, batch, completion, ..plain });
                }
            }
        }
        for buffers in [Buffers::Written, Buffers::Read] {
            cases.push(Case { buffers, ..plain });
        }
        cases.push(Case { endpoint: Endpoint::Msg, ..plain });
        for size in [8, 4 * KIB] {
            cases.push(new(provider, Pattern::Unexpected, size));
        }
    }
    for batch in [1, 16] {
        cases.push(Case { batch, ..new(Provider::Udp, Pattern::Rate, 8) });
    }
}

fn streams(cases: &mut Vec<Case>) {
    let new = |provider, size| Case::new(Section::Streams, provider, Pattern::Stream, size);
    for provider in WITHIN_AND_ACROSS {
        for size in [64 * KIB, MIB, 4 * MIB] {
            for window in [1, 16, 64] {
                cases.push(Case { window, ..new(provider, size) });
            }
            for buffers in [Buffers::Written, Buffers::Read, Buffers::Heap] {
                cases.push(Case { buffers, window: 16, ..new(provider, size) });
            }
        }
        for size in [4 * KIB, 256 * KIB] {
            cases.push(new(provider, size));
        }
        cases.push(Case { locking: Locking::Domain, batch: 16, ..new(provider, 64 * KIB) });
        cases.push(Case { endpoint: Endpoint::Msg, ..new(provider, 64 * KIB) });
        if provider == Provider::Tcp {
            // The process between them needs a core, too, so they sleep.
            for (size, window) in [(64 * KIB, 64), (MIB, 16)] {
                for relay in [50, 1000] {
                    let (endpoint, wait) = (Endpoint::Msg, Wait::Sread);
                    cases.push(Case { endpoint, wait, relay, window, ..new(provider, size) });
                }
            }
        }
        // Each message of futures has a buffer of its own.
        for (size, window) in [(64 * KIB, 64), (MIB, 16)] {
            let (interface, buffers) = (Interface::Futures, Buffers::Apart);
            cases.push(Case { interface, buffers, window, milliseconds: TURN, ..new(provider, size) });
        }
    }
    cases.push(new(Provider::Udp, KIB));
}

fn one_sided(cases: &mut Vec<Case>) {
    for provider in [Provider::Tcp, Provider::Rxm, Provider::Shm] {
        let new = |pattern, size| Case::new(Section::OneSided, provider, pattern, size);
        cases.push(Case { window: 16, ..new(Pattern::Write, 64 * KIB) });
        cases.push(Case { window: 16, ..new(Pattern::Read, MIB) });
        for pattern in [Pattern::Put, Pattern::FetchAdd, Pattern::InjectWrite] {
            cases.push(new(pattern, 8));
        }
    }
}

fn waiting(cases: &mut Vec<Case>) {
    let new = |provider, pattern| Case::new(Section::Waiting, provider, pattern, 8);
    for provider in WITHIN_AND_ACROSS {
        for wait in [Wait::Spin, Wait::Sread, Wait::Fd] {
            for progress in [Progress::Manual, Progress::Auto] {
                if (wait, progress) != (Wait::Spin, Progress::Manual) {
                    cases.push(Case { wait, progress, ..new(provider, Pattern::Latency) });
                }
            }
        }
        let idle = Case { milliseconds: 2000, ..new(provider, Pattern::Idle) };
        cases.push(Case { wait: Wait::Sread, ..idle });
        cases.push(Case { wait: Wait::Sread, peers: 64, ..idle });
        cases.push(Case { wait: Wait::Fd, ..idle });
        cases.push(Case { progress: Progress::Auto, ..idle });
    }
    for wait in [Wait::Sread, Wait::Fd] {
        cases.push(Case { wait, ..new(Provider::Udp, Pattern::Latency) });
    }
}

fn peers_and_threads(cases: &mut Vec<Case>) {
    let new = |provider, pattern, size| Case::new(Section::PeersAndThreads, provider, pattern, size);
    for provider in WITHIN_AND_ACROSS {
        for peers in [4, 16, 64] {
            cases.push(Case { peers, ..new(provider, Pattern::Latency, 8) });
        }
        for peers in [16, 64] {
            cases.push(Case { peers, ..new(provider, Pattern::Rate, 8) });
        }
        if provider == Provider::Tcp {
            cases.push(Case { idle: 1000, ..new(provider, Pattern::Latency, 8) });
        }
        // More threads than cores: scheduling adds variance, so samples are longer.
        for threads in [2, 4] {
            cases.push(Case { threads, milliseconds: 500, ..new(provider, Pattern::Rate, 8) });
        }
        for threads in [1, 2, 4, 8] {
            cases.push(Case { threads, window: 4, milliseconds: 500, ..new(provider, Pattern::Both, MIB) });
        }
        for pattern in [Pattern::Contexts, Pattern::Endpoints, Pattern::Shared] {
            for threads in [1, 2, 4] {
                cases.push(Case { threads, milliseconds: 500, ..new(provider, pattern, 8) });
            }
        }
    }
}

fn processes(cases: &mut Vec<Case>) {
    let new = |provider, pattern| Case { milliseconds: 500, ..Case::new(Section::Processes, provider, pattern, 8) };
    for reads in [1, 50, 1000, 0] {
        cases.push(Case { processes: 64, reads, ..new(Provider::Shm, Pattern::All) });
    }
    for processes in [2, 8, 64] {
        cases.push(Case { processes, reads: 50, ..new(Provider::Shm, Pattern::Pairs) });
    }
    cases.push(Case { processes: 16, reads: 50, ..new(Provider::Tcp, Pattern::All) });
    for provider in WITHIN_AND_ACROSS {
        for processes in [4, 16] {
            for pattern in [Pattern::Pairs, Pattern::Gap] {
                cases.push(Case { processes, ..new(provider, pattern) });
            }
        }
    }
    cases.push(Case { processes: 16, wait: Wait::Sread, ..new(Provider::Tcp, Pattern::Pairs) });
    cases.push(Case { processes: 16, wait: Wait::Sread, ..new(Provider::Shm, Pattern::Pairs) });
}

fn collectives(cases: &mut Vec<Case>) {
    for provider in WITHIN_AND_ACROSS {
        for processes in [2, 4, 8] {
            // Processes that share a core let the others run when there is nothing to read.
            let reads = usize::from(processes > 2);
            let new = |pattern, size| {
                let case = Case::new(Section::Collectives, provider, pattern, size);
                Case { processes, reads, ..case }
            };
            cases.push(new(Pattern::Barrier, 8));
            for size in [8, KIB, 64 * KIB, MIB] {
                cases.push(new(Pattern::Allreduce, size));
            }
        }
    }
}

/// Collective operations of programs are measured on two processes, as the pairs are.
fn programs(cases: &mut Vec<Case>) {
    for provider in WITHIN_AND_ACROSS {
        let new = |pattern, size| Case::new(Section::Programs, provider, pattern, size);
        for size in [8, 64 * KIB, MIB] {
            cases.push(new(Pattern::ImbPingPong, size));
            cases.push(new(Pattern::ImbAllreduce, size));
        }
        for pattern in [Pattern::ImbPingPing, Pattern::ImbExchange, Pattern::ImbAlltoall] {
            cases.push(new(pattern, 64 * KIB));
        }
    }
    // Over tcp, Intel MPI gives writes no context, and takes the null context for a request.
    for pattern in [Pattern::ImbPut, Pattern::ImbGet] {
        cases.push(Case::new(Section::Programs, Provider::Shm, pattern, 64 * KIB));
    }
}

fn connections_and_memory(cases: &mut Vec<Case>) {
    let new = |provider, pattern| Case::new(Section::ConnectionsAndMemory, provider, pattern, 8);
    for provider in WITHIN_AND_ACROSS {
        for endpoint in [Endpoint::Rdm, Endpoint::Msg] {
            for peers in [1, 64] {
                cases.push(Case { endpoint, peers, ..new(provider, Pattern::Connect) });
            }
            cases.push(Case { endpoint, peers: 64, ..new(provider, Pattern::MemoryOfPeer) });
        }
    }
    for provider in [Provider::Tcp, Provider::Shm, Provider::Udp] {
        cases.push(new(provider, Pattern::MemoryOfEndpoint));
    }
    for (provider, peers) in [(Provider::Shm, 16), (Provider::Tcp, 32)] {
        cases.push(Case { peers, processes: 8, reads: 50, ..new(provider, Pattern::Start) });
    }
}

fn scale(cases: &mut Vec<Case>) {
    for provider in WITHIN_AND_ACROSS {
        for pattern in [Pattern::Cancel, Pattern::Reverse, Pattern::Ends, Pattern::Inserts] {
            cases.push(Case::new(Section::Scale, provider, pattern, 8));
        }
    }
}

fn counts(cases: &mut Vec<Case>) {
    let new = |provider, counted, size, window| {
        let pattern = Pattern::Solo;
        Case { counted, window, ..Case::new(Section::Counts, provider, pattern, size) }
    };
    for provider in [Provider::Tcp, Provider::Shm, Provider::Udp] {
        cases.push(new(provider, Counted::Value, 8, 1));
        for counted in [Counted::SystemCalls, Counted::Instructions] {
            cases.push(new(provider, counted, 8, 1));
            cases.push(new(provider, counted, 8, 16));
        }
    }
    for provider in WITHIN_AND_ACROSS {
        let domain = new(provider, Counted::Instructions, 8, 16);
        cases.push(Case { locking: Locking::Domain, batch: 16, ..domain });
        cases.push(new(provider, Counted::SystemCalls, 64 * KIB, 1));
        cases.push(new(provider, Counted::SystemCalls, MIB, 1));
        let sleeps = Case::new(Section::Counts, provider, Pattern::Latency, 8);
        cases.push(Case { counted: Counted::SystemCalls, wait: Wait::Sread, ..sleeps });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let cases = all();
        let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn every_value_of_every_dimension_occurs() {
        fn every<T: Copy + PartialEq + std::fmt::Debug>(what: &[T], of: impl Fn(&Case) -> T) {
            let cases = all();
            for value in what {
                assert!(cases.iter().any(|case| of(case) == *value), "no case has {value:?}");
            }
        }
        every(Provider::ALL, |case| case.provider);
        every(Endpoint::ALL, |case| case.endpoint);
        every(Pattern::ALL, |case| case.pattern);
        every(Locking::ALL, |case| case.locking);
        every(Buffers::ALL, |case| case.buffers);
        every(Completion::ALL, |case| case.completion);
        every(Wait::ALL, |case| case.wait);
        every(Progress::ALL, |case| case.progress);
        every(Interface::ALL, |case| case.interface);
        every(Section::ALL, |case| case.section);
        every(&[Counted::Value, Counted::SystemCalls, Counted::Instructions], |case| case.counted);
        every(&[1, 16], |case| case.batch);
        every(&[1, 16, 64], |case| case.window);
        every(&[1, 2, 4], |case| case.threads);
        every(&[1, 4, 16, 64], |case| case.peers);
        every(&[8, 64, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB], |case| case.size);
    }

    #[test]
    fn half_round_trips_cross_sizes_buffers_and_media() {
        for provider in WITHIN_AND_ACROSS {
            for size in [8, 64, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB] {
                for buffers in PAYLOADS {
                    let wanted = Case::new(Section::HalfRoundTrips, provider, Pattern::Latency, size);
                    assert!(all().contains(&Case { buffers, ..wanted }), "{}", wanted.name());
                }
            }
        }
    }

    #[test]
    fn the_quick_part_is_small_and_has_every_section() {
        let quick: Vec<Case> = all().into_iter().filter(Case::is_quick).collect();
        assert!(quick.len() * 3 < all().len(), "{} of {}", quick.len(), all().len());
        for section in Section::ALL {
            assert!(quick.iter().any(|case| case.section == *section), "{section:?}");
        }
    }
}
