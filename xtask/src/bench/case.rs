//! A benchmark case: a configuration of `benches/fabric.c` with its name, unit and baselines.

/// Defines an option of the benchmark programs: an enum with a command line word per variant.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),* }

        impl $name {
            #[allow(dead_code, reason = "tests check that every value occurs")]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word on the command line, or in a name.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}

words!(
    /// The provider that carries the messages.
    Provider { Tcp = "tcp", Rxm = "tcp;ofi_rxm", Shm = "shm", Udp = "udp" }
);
words!(Endpoint { Rdm = "rdm", Msg = "msg", Dgram = "dgram" });
words!(
    /// The message pattern; see `benches/fabric.c` and the files that it names.
    Pattern {
        Latency = "latency",
        Rate = "rate",
        Stream = "stream",
        Both = "both",
        Unexpected = "unexpected",
        Write = "write",
        Read = "read",
        Put = "put",
        FetchAdd = "fetch-add",
        InjectWrite = "inject-write",
        Connect = "connect",
        MemoryOfPeer = "memory-peer",
        MemoryOfEndpoint = "memory-endpoint",
        Idle = "idle",
        All = "all",
        Pairs = "pairs",
        Gap = "gap",
        Start = "start",
        Allreduce = "allreduce",
        Barrier = "barrier",
        Solo = "solo",
        Cancel = "cancel",
        Reverse = "reverse",
        Ends = "ends",
        Inserts = "inserts",
        Contexts = "contexts",
        Endpoints = "endpoints",
        Shared = "shared",
        ImbPingPong = "PingPong",
        ImbPingPing = "PingPing",
        ImbExchange = "Exchange",
        ImbAllreduce = "Allreduce",
        ImbAlltoall = "Alltoall",
        ImbPut = "Unidir_put",
        ImbGet = "Unidir_get",
    }
);
words!(Locking { Safe = "safe", Domain = "domain" });
words!(
    /// Which side touches the payload between messages; see `benches/bench.h`.
    Buffers { Kept = "kept", Written = "written", Read = "read", Cold = "cold", Apart = "apart", Heap = "heap" }
);
words!(Completion { Send = "send", Inject = "inject", Selective = "selective" });
words!(Wait { Spin = "spin", Sread = "sread", Fd = "fd" });
words!(Progress { Manual = "manual", Auto = "auto" });
words!(
    /// Through which interface of ours: `benches/fabric.c` or `benches/futures.rs`.
    Interface { C = "c", Futures = "futures" }
);

/// The quantity that a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// The value that the program prints.
    Value,
    /// System calls per message, counted by strace.
    SystemCalls,
    /// Instructions per message, counted by callgrind.
    Instructions,
}

impl Counted {
    /// The counting program and its version option.
    pub(crate) fn counter(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Value => None,
            Self::SystemCalls => Some(("strace", "-V")),
            Self::Instructions => Some(("valgrind", "--version")),
        }
    }
}

/// The unit of a value, and whether smaller values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) less_is_better: bool,
}

/// A section of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    HalfRoundTrips,
    Rates,
    Streams,
    OneSided,
    Waiting,
    PeersAndThreads,
    Processes,
    Collectives,
    Programs,
    ConnectionsAndMemory,
    Scale,
    Counts,
}

impl Section {
    pub(crate) const ALL: &[Self] = &[
        Self::HalfRoundTrips,
        Self::Rates,
        Self::Streams,
        Self::OneSided,
        Self::Waiting,
        Self::PeersAndThreads,
        Self::Processes,
        Self::Collectives,
        Self::Programs,
        Self::ConnectionsAndMemory,
        Self::Scale,
        Self::Counts,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::HalfRoundTrips => "Half round trips",
            Self::Rates => "Message rates",
            Self::Streams => "Streams",
            Self::OneSided => "One-sided operations",
            Self::Waiting => "Waiting and idling",
            Self::PeersAndThreads => "Peers and threads",
            Self::Processes => "Many processes on two cores",
            Self::Collectives => "Collective operations",
            Self::Programs => "Intel MPI Benchmarks",
            Self::ConnectionsAndMemory => "Connections and memory",
            Self::Scale => "Long queues and many peers",
            Self::Counts => "System calls and instructions",
        }
    }
}

/// The place of a case in a plot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// The plot's file name without its extension.
    pub(crate) plot: String,
    pub(crate) title: String,
    pub(crate) x_label: &'static str,
    pub(crate) x: f64,
}

/// The tests of ucx_perftest that correspond to a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ucx {
    /// Its transports (UCX_TLS).
    pub(crate) transport: &'static str,
    pub(crate) tagged: &'static str,
    pub(crate) put: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) section: Section,
    pub(crate) counted: Counted,
    pub(crate) provider: Provider,
    pub(crate) endpoint: Endpoint,
    pub(crate) pattern: Pattern,
    pub(crate) size: usize,
    pub(crate) window: usize,
    pub(crate) threads: usize,
    pub(crate) peers: usize,
    pub(crate) processes: usize,
    pub(crate) locking: Locking,
    pub(crate) batch: usize,
    pub(crate) buffers: Buffers,
    pub(crate) completion: Completion,
    pub(crate) wait: Wait,
    pub(crate) progress: Progress,
    pub(crate) interface: Interface,
    /// Empty reads before a process yields its core; 0: it never yields.
    pub(crate) reads: usize,
    /// Connections without traffic, to endpoints of a process that sleeps.
    pub(crate) idle: usize,
    /// Microseconds by which a process between the two delays what they send; 0: there is none.
    pub(crate) relay: usize,
    pub(crate) milliseconds: u32,
}

pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;
/// Rounds for patterns with little variance or long samples.
const FEW_ROUNDS: usize = 2;

impl Case {
    pub(crate) fn new(section: Section, provider: Provider, pattern: Pattern, size: usize) -> Self {
        Self {
            section,
            counted: Counted::Value,
            provider,
            endpoint: if provider == Provider::Udp { Endpoint::Dgram } else { Endpoint::Rdm },
            pattern,
            size,
            // A window that fits udp's socket buffers under any scheduling.
            window: if provider == Provider::Udp { 16 } else { 64 },
            threads: 1,
            peers: 1,
            processes: 2,
            locking: Locking::Safe,
            batch: 1,
            buffers: Buffers::Kept,
            completion: Completion::Send,
            wait: Wait::Spin,
            progress: Progress::Manual,
            interface: Interface::C,
            reads: 0,
            idle: 0,
            relay: 0,
            milliseconds: 250,
        }
    }

    /// Whether every setting but endpoint, window and buffers is an ordinary program's default.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = Self::new(self.section, self.provider, self.pattern, self.size);
        let (endpoint, window, buffers) = (self.endpoint, self.window, self.buffers);
        *self == Self { endpoint, window, buffers, ..plain }
    }

    fn has_window(&self) -> bool {
        matches!(
            self.pattern,
            Pattern::Rate
                | Pattern::Stream
                | Pattern::Both
                | Pattern::Unexpected
                | Pattern::Pairs
                | Pattern::Gap
                | Pattern::Write
                | Pattern::Read
                | Pattern::InjectWrite
                | Pattern::Contexts
                | Pattern::Endpoints
                | Pattern::Shared
        )
    }

    /// Suffixes of the name for fields that differ from the plain case.
    fn extras(&self) -> Vec<String> {
        let mut extras = Vec::new();
        let mut add = |wanted: bool, text: String| {
            if wanted {
                extras.push(text);
            }
        };
        add(self.has_window(), format!("window {}", self.window));
        add(self.endpoint == Endpoint::Msg, "FI_EP_MSG".into());
        add(self.threads > 1, format!("{} threads", self.threads));
        add(
            self.peers > 1 && !matches!(self.pattern, Pattern::Connect | Pattern::Start),
            format!("{} peers", self.peers),
        );
        add(self.idle > 0, format!("beside {} idle connections", self.idle));
        add(self.relay > 0, format!("{} us away", self.relay));
        add(self.locking == Locking::Domain, "FI_THREAD_DOMAIN".into());
        add(self.batch > 1, format!("{} a read", self.batch));
        add(self.buffers != Buffers::Kept, format!("buffers {}", self.buffers.word()));
        add(self.completion == Completion::Inject, "inject".into());
        add(self.completion == Completion::Selective, "selective completion".into());
        add(self.wait == Wait::Sread, "fi_cq_sread".into());
        add(self.wait == Wait::Fd, "FI_WAIT_FD".into());
        add(self.progress == Progress::Auto, "automatic progress".into());
        add(self.interface == Interface::Futures, self.interface.word().into());
        let crowd = matches!(self.pattern, Pattern::All | Pattern::Pairs | Pattern::Gap);
        let yields = self.reads > 0 && !self.is_collective();
        add(crowd && self.reads == 0 && self.wait == Wait::Spin, "never yields".into());
        add(yields && self.reads == 1, "yields after 1 read".into());
        add(yields && self.reads > 1, format!("yields after {} reads", self.reads));
        extras
    }

    /// The unique name.
    pub(crate) fn name(&self) -> String {
        let (provider, size) = (self.provider.word(), bytes(self.size));
        let mut name = match (self.counted, self.pattern) {
            (Counted::SystemCalls, _) => format!("{provider} {size} system calls a message"),
            (Counted::Instructions, _) => format!("{provider} {size} instructions a message"),
            (_, Pattern::Latency) => format!("{provider} {size} half round trip"),
            (_, Pattern::Rate) => format!("{provider} {size} rate"),
            (_, Pattern::Stream) => format!("{provider} {size} stream"),
            (_, Pattern::Both) => format!("{provider} {size} both ways"),
            (_, Pattern::Unexpected) => format!("{provider} {size} unexpected"),
            (_, Pattern::Write) => format!("{provider} {size} write stream"),
            (_, Pattern::Read) => format!("{provider} {size} read stream"),
            (_, Pattern::Put) => format!("{provider} {size} write, half round trip on polled memory"),
            (_, Pattern::FetchAdd) => format!("{provider} {size} fetch-add"),
            (_, Pattern::InjectWrite) => format!("{provider} {size} inject_write rate"),
            (_, Pattern::Connect) if self.peers == 1 => format!("{provider} first message to a new peer"),
            (_, Pattern::Connect) => format!("{provider} first message to each of {} new peers", self.peers),
            (_, Pattern::MemoryOfPeer) => format!("{provider} memory of an idle peer"),
            (_, Pattern::MemoryOfEndpoint) => format!("{provider} memory of an endpoint"),
            (_, Pattern::Idle) => format!("{provider} idle process"),
            (_, Pattern::All) => format!("{provider} {size} all to all, {} processes", self.processes),
            (_, Pattern::Pairs) => format!("{provider} {size} pairs, {} processes", self.processes),
            (_, Pattern::Gap) => format!("{provider} {size} pairs, {} processes, longest gap", self.processes),
            (_, Pattern::Start) => {
                let endpoints = self.processes * self.peers;
                format!("{provider} start of {endpoints} endpoints, {} processes", self.processes)
            }
            (_, Pattern::Allreduce) => format!("{provider} {size} allreduce, {} processes", self.processes),
            (_, Pattern::Barrier) => format!("{provider} barrier, {} processes", self.processes),
            (_, Pattern::Solo) => format!("{provider} {size} processor time of a message"),
            (_, Pattern::Cancel) => format!("{provider} 100,000 cancels"),
            (_, Pattern::Reverse) => format!("{provider} 100,000 receives matched in reverse order"),
            (_, Pattern::Ends) => format!("{provider} end of 2,000 links"),
            (_, Pattern::Contexts) => format!("{provider} {size} rate, contexts of a scalable endpoint"),
            (_, Pattern::Endpoints) => format!("{provider} {size} rate, endpoints of a domain"),
            (_, Pattern::Shared) => format!("{provider} {size} rate, one endpoint for all threads"),
            (_, Pattern::Inserts) => format!("{provider} 10,000 address insertions amid traffic"),
            _ => format!("{provider} {size} IMB {}", self.pattern.word()),
        };
        if self.counted != Counted::Value && self.pattern == Pattern::Solo && self.window > 1 {
            name += &format!(", window {}", self.window);
        }
        for extra in self.extras() {
            name += ", ";
            name += &extra;
        }
        name
    }

    /// The unit of the value.
    pub(crate) fn unit(&self) -> Unit {
        let (name, less_is_better) = match (self.counted, self.pattern) {
            (Counted::SystemCalls, _) => ("calls", true),
            (Counted::Instructions, _) => ("instructions", true),
            (_, Pattern::Latency | Pattern::Connect | Pattern::Solo) => ("us", true),
            (_, Pattern::Put | Pattern::FetchAdd | Pattern::Allreduce | Pattern::Barrier) => ("us", true),
            (_, Pattern::Stream | Pattern::Both | Pattern::Write | Pattern::Read) => ("MB/s", false),
            (_, Pattern::InjectWrite) => ("M/s", false),
            (_, Pattern::Rate | Pattern::Unexpected | Pattern::All | Pattern::Pairs) => ("M/s", false),
            (_, Pattern::Contexts | Pattern::Endpoints | Pattern::Shared) => ("M/s", false),
            (_, Pattern::MemoryOfPeer | Pattern::MemoryOfEndpoint) => ("KiB", true),
            (_, Pattern::Idle) => ("us/s", true),
            (_, Pattern::Gap | Pattern::Start) => ("ms", true),
            (_, Pattern::Cancel | Pattern::Reverse | Pattern::Ends | Pattern::Inserts) => ("s", true),
            // Programs.
            _ => ("us", true),
        };
        Unit { name, less_is_better }
    }

    /// Maximum number of useful rounds.
    pub(crate) fn most_rounds(&self) -> usize {
        match (self.counted, self.pattern) {
            (Counted::SystemCalls | Counted::Instructions, _) => 1,
            (_, Pattern::Idle | Pattern::MemoryOfPeer | Pattern::MemoryOfEndpoint) => FEW_ROUNDS,
            (_, Pattern::Cancel | Pattern::Reverse | Pattern::Ends | Pattern::Inserts) => FEW_ROUNDS,
            _ => usize::MAX,
        }
    }

    /// Whether the samples measure cache-line latency themselves, or do not depend on it.
    pub(crate) fn is_bracketed(&self) -> bool {
        if self.is_program() {
            return false;
        }
        let crowd = matches!(
            self.pattern,
            Pattern::All | Pattern::Pairs | Pattern::Gap | Pattern::Start | Pattern::Allreduce | Pattern::Barrier
        );
        self.interface == Interface::C && (!crowd || self.processes == 2 && !self.is_collective())
    }

    /// Whether the rival is MPICH's operation over the other library.
    pub(crate) const fn is_collective(&self) -> bool {
        matches!(self.pattern, Pattern::Allreduce | Pattern::Barrier)
    }

    /// Whether a program that others wrote measures it (`imb.rs`).
    pub(crate) fn is_program(&self) -> bool {
        self.section == Section::Programs
    }

    /// Whether that program writes and reads.
    pub(crate) const fn is_one_sided_program(&self) -> bool {
        matches!(self.pattern, Pattern::ImbPut | Pattern::ImbGet)
    }

    /// Messages that one repetition of the pattern sends.
    pub(crate) fn messages_per_repetition(&self) -> usize {
        match self.pattern {
            Pattern::Latency => 2,
            Pattern::Solo => 2 * self.window,
            _ => self.window,
        }
    }

    /// Options of `benches/futures.rs`, without cores and duration.
    pub(crate) fn arguments_of_futures(&self) -> Vec<String> {
        let (size, window) = (self.size.to_string(), self.window.to_string());
        let all = [
            ("provider", self.provider.word()),
            ("pattern", self.pattern.word()),
            ("size", &size),
            ("window", &window),
        ];
        all.into_iter().flat_map(|(name, value)| [format!("--{name}"), value.to_owned()]).collect()
    }

    /// Options of `benches/fabric.c`, without cores and duration.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let words = [
            ("provider", self.provider.word()),
            ("endpoint", self.endpoint.word()),
            ("pattern", self.pattern.word()),
            ("locking", self.locking.word()),
            ("buffers", self.buffers.word()),
            ("completion", self.completion.word()),
            ("wait", self.wait.word()),
            ("progress", self.progress.word()),
        ];
        let numbers = [
            ("size", self.size),
            ("window", self.window),
            ("threads", self.threads),
            ("peers", self.peers),
            ("processes", self.processes),
            ("batch", self.batch),
            ("yield", self.reads),
            ("idle", self.idle),
            ("relay", self.relay),
        ];
        let words = words.map(|(name, value)| (name, value.to_owned()));
        let numbers = numbers.map(|(name, value)| (name, value.to_string()));
        words.into_iter().chain(numbers).flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }

    /// How often the sides take turns in a round; their middle samples are compared. A machine
    /// whose speed changes within a second would otherwise move a pair by more than what futures
    /// may cost.
    pub(crate) fn turns(&self) -> usize {
        if self.interface == Interface::Futures { 9 } else { 1 }
    }

    /// The same through our C interface, for futures.
    pub(crate) fn through_c(&self) -> Option<Self> {
        (self.interface == Interface::Futures).then_some(Self { interface: Interface::C, ..*self })
    }

    /// Our message with which the case is compared, and how many of its half round trips count: one
    /// for a write that the target sees, or for a message beside idle connections or a thread of
    /// the library, two for an operation that returns something.
    pub(crate) fn message(&self) -> Option<(Self, f64)> {
        let message = Self::new(Section::HalfRoundTrips, self.provider, Pattern::Latency, self.size);
        match self.pattern {
            Pattern::Put => Some((message, 1.0)),
            Pattern::Latency if self.idle > 0 => Some((message, 1.0)),
            Pattern::Latency if self.progress == Progress::Auto && self.wait == Wait::Spin => Some((message, 1.0)),
            Pattern::FetchAdd => Some((message, 2.0)),
            _ => None,
        }
    }

    /// Equivalents without a library, as options of `benches/bare.c`; the best one is the baseline.
    pub(crate) fn bare(&self) -> Vec<Vec<String>> {
        let waits = self.pattern == Pattern::Latency && self.wait != Wait::Spin;
        let alike = Self { wait: Wait::Spin, relay: 0, ..*self };
        if self.counted != Counted::Value || !alike.is_plain() {
            return Vec::new();
        }
        let options = |pattern: &str, more: &[&str]| -> Vec<String> {
            let (size, window, relay) = (self.size.to_string(), self.window.to_string(), self.relay.to_string());
            let sizes = ["--size", &size, "--window", &window, "--relay", &relay];
            let all = [&["--pattern", pattern, "--buffers", self.buffers.word()], &sizes[..]].concat();
            all.iter().chain(more).map(|word| (*word).to_owned()).collect()
        };
        // One-sided streams move bytes as messages do.
        let streams = matches!(self.pattern, Pattern::Stream | Pattern::Write | Pattern::Read);
        let pattern = if streams { Pattern::Stream } else { self.pattern };
        let sockets = |loops: &[&str]| -> Vec<Vec<String>> {
            let provider = if self.provider == Provider::Udp { "udp" } else { "tcp" };
            let one = |way: &&str| options(pattern.word(), &["--provider", provider, "--loop", way]);
            loops.iter().map(one).collect()
        };
        match (self.provider, pattern) {
            (Provider::Shm, Pattern::Latency) if waits => Vec::new(),
            (Provider::Shm, Pattern::Latency) if self.size <= 64 => vec![options("line", &[])],
            (Provider::Shm, Pattern::Latency | Pattern::Stream) => ["reading", "writing", "both", "pooled"]
                .map(|way| options(pattern.word(), &["--provider", "shm", "--loop", way]))
                .to_vec(),
            (Provider::Shm, _) => Vec::new(),
            (_, Pattern::Latency) if waits => sockets(&["blocking"]),
            (_, Pattern::Latency) => sockets(&["busy", "blocking"]),
            (_, Pattern::Rate | Pattern::Stream) => sockets(&["busy", "blocking", "batched"]),
            _ => Vec::new(),
        }
    }

    /// The corresponding UCX tests; ucx_perftest has no udp here and does not rewrite buffers.
    pub(crate) fn ucx(&self) -> Option<Ucx> {
        let transport = match self.provider {
            Provider::Tcp => "tcp",
            Provider::Shm => "shm",
            Provider::Rxm | Provider::Udp => return None,
        };
        let plain = self.is_plain() && self.buffers == Buffers::Kept && self.endpoint == Endpoint::Rdm;
        match self.pattern {
            Pattern::Latency if plain => Some(Ucx { transport, tagged: "tag_lat", put: "ucp_put_lat" }),
            Pattern::Rate | Pattern::Stream if plain && self.window == 64 => {
                Some(Ucx { transport, tagged: "tag_bw", put: "ucp_put_bw" })
            }
            _ => None,
        }
    }

    /// The place in a plot: plain cases over size or window.
    pub(crate) fn point(&self) -> Option<Point> {
        if self.counted != Counted::Value || !self.is_plain() || self.endpoint != Endpoint::Rdm {
            return None;
        }
        let (provider, buffers) = (self.provider.word(), self.buffers.word());
        let over_size = |what: &str, title: &str| Point {
            plot: format!("{what}-{provider}-{buffers}"),
            title: format!("{provider}: {title}, buffers {buffers}"),
            x_label: "bytes",
            x: f64::from(u32::try_from(self.size).unwrap_or(u32::MAX)),
        };
        let over_window = Point {
            plot: format!("rate-{provider}"),
            title: format!("{provider}: rate of 8 B messages, M/s"),
            x_label: "window",
            x: f64::from(u32::try_from(self.window).unwrap_or(u32::MAX)),
        };
        match (self.provider, self.pattern, self.buffers) {
            (Provider::Rxm | Provider::Udp, ..) | (.., Buffers::Cold) => None,
            (_, Pattern::Latency, _) => Some(over_size("latency", "half round trip, us")),
            (_, Pattern::Stream, Buffers::Kept) if self.window == 64 => Some(over_size("stream", "stream, MB/s")),
            (_, Pattern::Rate, Buffers::Kept) => Some(over_window),
            _ => None,
        }
    }

    /// Whether `--quick` runs it.
    pub(crate) fn is_quick(&self) -> bool {
        let (tcp, crowd) =
            (self.provider == Provider::Tcp, matches!(self.pattern, Pattern::All | Pattern::Pairs | Pattern::Gap));
        match (self.counted, self.pattern) {
            (Counted::SystemCalls | Counted::Instructions, _) => tcp && self.size == 8 && self.window == 1,
            (_, Pattern::Idle) => tcp && self.wait == Wait::Sread && self.peers == 1,
            (_, Pattern::Connect | Pattern::MemoryOfPeer | Pattern::MemoryOfEndpoint) => self.endpoint == Endpoint::Rdm,
            (_, Pattern::Both) => self.threads == 2,
            _ if self.is_program() => self.pattern == Pattern::ImbPingPong && self.size == 8,
            (_, Pattern::Solo | Pattern::Endpoints | Pattern::Shared | Pattern::Start) => false,
            (_, Pattern::Allreduce | Pattern::Barrier) => self.size == 8 && self.processes == 2,
            (_, Pattern::Contexts) => self.threads == 2,
            (_, Pattern::Cancel) => tcp,
            (_, Pattern::Reverse | Pattern::Ends | Pattern::Inserts) => false,
            (_, Pattern::Unexpected) => self.size == 8,
            (_, Pattern::Put | Pattern::FetchAdd | Pattern::InjectWrite) => self.provider != Provider::Rxm,
            _ if crowd => self.processes <= 8,
            (_, Pattern::Latency) if self.wait == Wait::Sread => tcp && self.progress == Progress::Manual,
            _ if self.interface == Interface::Futures => false,
            _ if self.buffers != Buffers::Kept => self.is_plain() && self.size == 64 * KIB,
            _ => self.is_plain() && (self.point().is_some() || (self.provider == Provider::Udp && self.size == 8)),
        }
    }
}

/// A number of bytes with its unit.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        MIB.. if size.is_multiple_of(MIB) => format!("{} MiB", size / MIB),
        KIB.. if size.is_multiple_of(KIB) => format!("{} KiB", size / KIB),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests;
