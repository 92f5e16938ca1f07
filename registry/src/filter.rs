//! Which providers an application or the environment selects by name (fabric(7), FI_PROVIDER).

use ofi_core::param::{Param, ParamKind};

/// The providers to use.
pub const PROVIDER: Param = Param {
    name: "FI_PROVIDER",
    kind: ParamKind::String,
    help: "Use only the providers in this comma-separated list; with ^ in front, all others (default: all)",
};

/// Where loaded providers are.
pub const PROVIDER_PATH: Param = Param {
    name: "FI_PROVIDER_PATH",
    kind: ParamKind::String,
    help: "Folders with loadable providers of the C library, separated by colons; @ in front lets the first of a name win \
           instead of the newest, +/FILE prefers that file (default: the folder libfabric beside the library)",
};
/// Which loaded providers take the place of built-in ones.
pub const PREFER_LOADED: Param = Param {
    name: "FI_OFI_PREFER_LOADED",
    kind: ParamKind::String,
    help: "Names that loaded providers take from the built-in ones, separated by commas, or all (default: none)",
};

/// What watches the calls of programs.
pub const HOOK: Param = Param {
    name: "FI_HOOK",
    kind: ParamKind::String,
    help: "What watches the calls of C programs, separated by semicolons: trace, perf, profile, debug, noop (default: \
           nothing)",
};

/// Whether FI_PROVIDER selects the provider with that full name: it lists the name or its core.
pub fn selected(list: Option<&str>, name: &str) -> bool {
    let Some(list) = list else { return true };
    let (negated, list) = match list.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let listed = list.split(',').any(|entry| {
        let entry = entry.trim();
        !entry.is_empty() && covers(entry, name, negated)
    });
    listed != negated
}

/// A listed name covers itself and names layered over it; an excluded one, all that have the layer.
fn covers(entry: &str, name: &str, negated: bool) -> bool {
    if name.eq_ignore_ascii_case(entry) {
        return true;
    }
    let layers: Vec<&str> = name.split(';').collect();
    if negated {
        return layers.iter().any(|layer| layer.eq_ignore_ascii_case(entry));
    }
    layers.first().is_some_and(|core| core.eq_ignore_ascii_case(entry))
}

/// Whether `prov_name` in the hints selects the provider with that full name. Layers may come in
/// any order; a single name selects all providers with that layer; `^name` excludes.
pub fn asked_for(wanted: Option<&str>, name: &str) -> bool {
    let Some(wanted) = wanted else { return true };
    let layers: Vec<&str> = name.split(';').collect();
    let has = |part: &str| layers.iter().any(|layer| layer.eq_ignore_ascii_case(part));
    let (excluded, named): (Vec<&str>, Vec<&str>) = wanted.split(';').partition(|part| part.starts_with('^'));
    if excluded.iter().any(|part| has(&part[1..])) {
        return false;
    }
    match named.as_slice() {
        [] => true,
        [one] => has(one),
        several => several.len() == layers.len() && several.iter().all(|part| has(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_lists_of_the_environment() {
        let all = ["tcp", "tcp;ofi_rxm"];
        let pick = |list| all.into_iter().filter(|name| selected(Some(list), name)).collect::<Vec<_>>();
        assert_eq!(pick("tcp"), ["tcp", "tcp;ofi_rxm"]);
        assert_eq!(pick("TCP"), ["tcp", "tcp;ofi_rxm"]);
        assert_eq!(pick("tcp;ofi_rxm"), ["tcp;ofi_rxm"]);
        assert!(pick("ofi_rxm").is_empty());
        assert!(pick("ofi_rxm;tcp").is_empty());
        assert!(pick("^tcp").is_empty());
        assert_eq!(pick("^ofi_rxm"), ["tcp"]);
        assert!(pick("").is_empty());
        assert_eq!(pick("^"), all);
        assert!(pick("nothing").is_empty());
        assert_eq!(pick("udp,tcp"), all);
        assert!(selected(None, "tcp"));
    }

    #[test]
    fn names_in_hints() {
        assert!(asked_for(Some("tcp"), "tcp"));
        assert!(asked_for(Some("tcp"), "tcp;ofi_rxm"));
        assert!(asked_for(Some("ofi_rxm;tcp"), "tcp;ofi_rxm"));
        assert!(!asked_for(Some("tcp;ofi_rxm"), "tcp"));
        assert!(asked_for(Some("ofi_rxm"), "tcp;ofi_rxm"));
        assert!(!asked_for(Some("^ofi_rxm"), "tcp;ofi_rxm"));
        assert!(asked_for(Some("^ofi_rxm"), "tcp"));
        assert!(asked_for(Some("tcp;^ofi_rxm"), "tcp"));
        assert!(!asked_for(Some("udp"), "tcp"));
    }
}
