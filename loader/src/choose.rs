//! What the names of providers mean: layers, order, and which providers a request reaches
//! (fi_getinfo(3), fi_provider(7)).

/// The layers of a requested name: `verbs;ofi_rxm`, in any order, with `^name` for names that are
/// excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    named: Vec<String>,
    excluded: Vec<String>,
}

impl Layers {
    /// The layers of `prov_name` in hints.
    pub fn parse(text: Option<&str>) -> Self {
        let mut out = Self::default();
        for part in text.unwrap_or_default().split(';').filter(|part| !part.is_empty()) {
            match part.strip_prefix('^') {
                Some(name) => out.excluded.push(name.to_owned()),
                None => out.named.push(part.to_owned()),
            }
        }
        out
    }

    /// Whether an application's request reaches the provider: a core provider by its name alone, a
    /// layer also by the name of what it is over.
    pub fn reach(&self, name: &str) -> bool {
        if has(&self.excluded, name) {
            return false;
        }
        match self.named.as_slice() {
            [] => true,
            [one] => one.eq_ignore_ascii_case(name) || is_layer(name) && !is_layer(one) && !stands_alone(one),
            several => is_layer(name) && has(several, name),
        }
    }

    /// Whether a layer's request for what is below it reaches the core provider. One that stands
    /// alone has to be named.
    pub fn reach_below(&self, name: &str) -> bool {
        let mut cores = self.named.iter().filter(|name| !is_layer(name)).peekable();
        let any = cores.peek().is_none();
        let reached = if any { !stands_alone(name) } else { cores.any(|core| core.eq_ignore_ascii_case(name)) };
        !has(&self.excluded, name) && reached
    }
}

fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| entry.eq_ignore_ascii_case(name))
}

/// Core providers over which layers are used only if a request names both: they do all that a layer
/// would add.
const STAND_ALONE: &[&str] = &["sockets", "shm", "efa", "psm2", "psm3", "ucx", "mlx", "cxi", "opx"];

fn stands_alone(name: &str) -> bool {
    STAND_ALONE.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a provider works over others.
pub fn is_layer(name: &str) -> bool {
    name.len() >= 4 && name.as_bytes()[..4].eq_ignore_ascii_case(b"ofi_")
}

/// Whether a provider serves other providers only, with collective operations.
pub fn is_offload(name: &str) -> bool {
    name.len() >= 4 && name.as_bytes()[..4].eq_ignore_ascii_case(b"off_")
}

/// Whether FI_PROVIDER lets layers use a core provider: it lists the core, or a name over it.
pub fn core_only(list: Option<&str>, name: &str) -> bool {
    let Some(list) = list else { return true };
    let (negated, list) = match list.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let lists = |entry: &str| {
        let entry = entry.trim();
        let core = if negated { entry } else { entry.split(';').next().unwrap_or_default() };
        core.eq_ignore_ascii_case(name)
    };
    list.split(',').any(lists) != negated
}

/// The order of providers in results. The built-in ones stand at [`BUILT_IN`].
const ORDER: &[&str] = &[
    "efa", "psm2", "opx", "usnic", "verbs", "cxi", "psm3", "ucx", "mlx", "ofi_rxm", "", "ofi_rxd", "shm", "udp", "tcp",
    "sockets", "net",
];
/// The place of the built-in providers in that order.
const BUILT_IN: usize = 10;

/// The place of an info with that full name, or of the built-in ones (`None`): that of its last
/// layer, or of a slower core. Unlisted providers come last.
pub fn rank(name: Option<&str>) -> usize {
    let Some(name) = name else { return BUILT_IN };
    let of = |layer: &str| ORDER.iter().position(|known| known.eq_ignore_ascii_case(layer)).unwrap_or(ORDER.len());
    name.split(';').map(of).max().unwrap_or(ORDER.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reaches_cores_by_name_and_layers_also_by_what_they_are_over() {
        let reach = |text: &str| {
            let layers = Layers::parse(Some(text));
            let all = ["verbs", "efa", "ofi_rxm", "ofi_rxd"];
            all.into_iter().filter(|name| layers.reach(name)).collect::<Vec<_>>()
        };
        assert_eq!(reach(""), ["verbs", "efa", "ofi_rxm", "ofi_rxd"]);
        assert_eq!(reach("Verbs"), ["verbs", "ofi_rxm", "ofi_rxd"]);
        assert_eq!(reach("efa"), ["efa"]);
        assert_eq!(reach("efa;ofi_rxm"), ["ofi_rxm"]);
        assert_eq!(reach("ofi_rxm"), ["ofi_rxm"]);
        assert_eq!(reach("verbs;ofi_rxm"), ["ofi_rxm"]);
        assert_eq!(reach("ofi_rxm;verbs"), ["ofi_rxm"]);
        assert_eq!(reach("^ofi_rxm"), ["verbs", "efa", "ofi_rxd"]);
        assert_eq!(reach("verbs;^ofi_rxm"), ["verbs", "ofi_rxd"]);
    }

    #[test]
    fn a_layer_asks_for_cores_without_itself() {
        let reach = |text: Option<&str>| {
            let layers = Layers::parse(text);
            ["verbs", "efa", "net"].into_iter().filter(|name| layers.reach_below(name)).collect::<Vec<_>>()
        };
        assert_eq!(reach(None), ["verbs", "net"]);
        assert_eq!(reach(Some("^ofi_rxm")), ["verbs", "net"]);
        assert_eq!(reach(Some("verbs;^ofi_rxm")), ["verbs"]);
        assert_eq!(reach(Some("verbs;ofi_rxm;^ofi_rxm")), ["verbs"]);
        assert_eq!(reach(Some("^verbs")), ["net"]);
        assert_eq!(reach(Some("efa;^ofi_rxm")), ["efa"]);
    }

    #[test]
    fn a_list_of_the_environment_lets_layers_use_what_they_are_over() {
        for (list, use_verbs) in [
            (None, true),
            (Some("verbs"), true),
            (Some("tcp,verbs;ofi_rxm"), true),
            (Some("ofi_rxm"), false),
            (Some("^verbs"), false),
            (Some("^ofi_rxm"), true),
        ] {
            assert_eq!(core_only(list, "verbs"), use_verbs, "{list:?}");
        }
    }

    #[test]
    fn fast_networks_come_before_the_built_in_providers_and_the_rest_after() {
        let built_in = rank(None);
        for name in ["efa", "psm3", "verbs", "verbs;ofi_rxm"] {
            assert!(rank(Some(name)) < built_in, "{name}");
        }
        for name in ["sockets", "tcp", "tcp;ofi_rxm", "shm", "nothing known", "verbs;ofi_rxd"] {
            assert!(rank(Some(name)) > built_in, "{name}");
        }
        assert!(rank(Some("efa")) < rank(Some("VERBS")) && rank(Some("sockets")) < rank(Some("x")));
    }
}
