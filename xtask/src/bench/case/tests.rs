use super::*;

#[test]
fn a_plain_case_is_one_that_programs_run_without_asking_for_speed() {
    let plain = Case::new(Section::Rates, Provider::Shm, Pattern::Rate, 8);
    assert_eq!((plain.locking, plain.batch, plain.completion), (Locking::Safe, 1, Completion::Send));
    assert!(plain.is_plain() && Case { buffers: Buffers::Read, ..plain }.is_plain());
    assert!(!Case { locking: Locking::Domain, ..plain }.is_plain());
    assert!(!Case { batch: 16, ..plain }.is_plain());
}

#[test]
fn a_case_that_sleeps_is_compared_with_a_socket_that_sleeps() {
    let spins = Case::new(Section::Waiting, Provider::Tcp, Pattern::Latency, 8);
    let loops = |case: &Case| -> Vec<String> {
        case.bare().into_iter().map(|way| way.last().cloned().unwrap_or_default()).collect()
    };
    assert_eq!(loops(&spins), ["busy", "blocking"]);
    assert_eq!(loops(&Case { wait: Wait::Fd, ..spins }), ["blocking"]);
    assert!(Case { wait: Wait::Fd, provider: Provider::Shm, ..spins }.bare().is_empty());
}

#[test]
fn a_large_payload_within_a_host_is_compared_with_every_way_between_two_processes() {
    let stream = Case::new(Section::Streams, Provider::Shm, Pattern::Stream, 64 * KIB);
    let read = Case { pattern: Pattern::Read, ..stream };
    for case in [stream, read] {
        let ways = case.bare();
        assert!(ways.iter().all(|way| way.windows(2).any(|words| words == ["--pattern", "stream"])), "{ways:?}");
        let loops: Vec<_> = ways.iter().filter_map(|way| way.last().map(String::as_str)).collect();
        assert_eq!(loops, ["reading", "writing", "both", "pooled"]);
    }
}

#[test]
fn sizes_are_written_as_people_write_them() {
    assert_eq!([8, 4 * KIB, 64 * KIB, MIB, 1000].map(bytes), ["8 B", "4 KiB", "64 KiB", "1 MiB", "1000 B"]);
}
