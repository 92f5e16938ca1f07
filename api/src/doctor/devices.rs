//! Network devices as /sys describes them, and what their providers lack on this machine.

use super::{Finding, Grade, bad, good, show};
use std::path::{Path, PathBuf};

const DEVICES: &str = "devices";
const NETWORKS: &str = "networks";
/// Locked memory below which large buffers cannot be registered, in bytes.
const ENOUGH_LOCKED: u64 = 64 << 20;
/// Folders of libraries, below the root.
const FOLDERS: [&str; 4] = ["usr/local/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib"];

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DevicePort {
    number: String,
    state: String,
    rate: String,
    /// "InfiniBand" or "Ethernet".
    link: String,
    /// Network interface, and its MTU in bytes.
    interface: Option<(String, String)>,
    /// Types of the identifiers (GID) that are set: "IB/RoCE v1", "RoCE v2".
    gids: Vec<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Device {
    name: String,
    driver: String,
    firmware: String,
    ports: Vec<DevicePort>,
}

/// What a provider needs on a machine.
struct Need {
    provider: &'static str,
    /// The drivers of its devices in /sys/class/infiniband; empty for any.
    drivers: &'static [&'static str],
    /// A class of devices of its own, instead.
    class: Option<&'static str>,
    /// The beginning of its files in /dev.
    nodes: &'static str,
    libraries: &'static [&'static str],
}

const NEEDS: [Need; 5] = [
    Need {
        provider: "verbs",
        drivers: &[],
        class: None,
        nodes: "infiniband/uverbs",
        libraries: &["libibverbs.so.1", "librdmacm.so.1"],
    },
    Need {
        provider: "efa",
        drivers: &["efa"],
        class: None,
        nodes: "infiniband/uverbs",
        libraries: &["libibverbs.so.1", "libefa.so.1"],
    },
    Need {
        provider: "psm3",
        drivers: &["irdma", "ice", "mlx5_core", "bnxt_en", "bnxt_re"],
        class: None,
        nodes: "infiniband/uverbs",
        libraries: &["libibverbs.so.1"],
    },
    Need { provider: "opx", drivers: &["hfi1"], class: None, nodes: "hfi1_", libraries: &[] },
    Need { provider: "cxi", drivers: &[], class: Some("cxi"), nodes: "cxi", libraries: &["libcxi.so.1"] },
];

/// A machine: the folder that stands for `/`, and its limit of locked memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) root: &'a Path,
    pub(super) locked: u64,
}

impl Machine<'_> {
    /// Checks devices, and what each network's provider lacks.
    pub(super) fn examine(&self, out: &mut Vec<Finding>) {
        let devices = self.devices();
        devices.iter().flat_map(findings).for_each(|finding| out.push(finding));
        self.cards(out);
        NEEDS.iter().for_each(|need| out.push(self.network(need, &devices)));
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap_or_default().trim().to_owned()
    }

    /// The names in a folder, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut all: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    /// The driver of a device in a class.
    fn driver(&self, class: &str, name: &str) -> String {
        let link = std::fs::read_link(self.root.join(format!("sys/class/{class}/{name}/device/driver")));
        let last = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        link.ok().and_then(last).unwrap_or_default()
    }

    fn devices(&self) -> Vec<Device> {
        let names = self.names("sys/class/infiniband");
        names.into_iter().map(|name| self.device(name)).collect()
    }

    fn device(&self, name: String) -> Device {
        let folder = format!("sys/class/infiniband/{name}");
        let ports = self.names(&format!("{folder}/ports"));
        Device {
            driver: self.driver("infiniband", &name),
            firmware: self.text(&format!("{folder}/fw_ver")),
            ports: ports.into_iter().map(|number| self.port(&folder, number)).collect(),
            name,
        }
    }

    fn port(&self, device: &str, number: String) -> DevicePort {
        let folder = format!("{device}/ports/{number}");
        // "4: ACTIVE"
        let state = self.text(&format!("{folder}/state"));
        let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned();
        let is_set = |entry: &String| {
            let gid = self.text(&format!("{folder}/gids/{entry}"));
            !gid.is_empty() && gid.chars().any(|digit| digit != '0' && digit != ':')
        };
        let set: Vec<String> = self.names(&format!("{folder}/gids")).into_iter().filter(is_set).collect();
        let mut gids: Vec<String> =
            set.iter().map(|entry| self.text(&format!("{folder}/gid_attrs/types/{entry}"))).collect();
        gids.retain(|kind| !kind.is_empty());
        gids.sort();
        gids.dedup();
        let interface = self.names(&format!("{folder}/gid_attrs/ndevs")).into_iter().find_map(|entry| {
            let name = self.text(&format!("{folder}/gid_attrs/ndevs/{entry}"));
            (!name.is_empty()).then(|| (name.clone(), self.text(&format!("sys/class/net/{name}/mtu"))))
        });
        let rate = self.text(&format!("{folder}/rate"));
        DevicePort { number, state, rate, link: self.text(&format!("{folder}/link_layer")), interface, gids }
    }

    /// Network cards that are no RDMA devices: those with a driver.
    fn cards(&self, out: &mut Vec<Finding>) {
        for name in self.names("sys/class/net") {
            let driver = self.driver("net", &name);
            if driver.is_empty() {
                continue;
            }
            let of = |field: &str| self.text(&format!("sys/class/net/{name}/{field}"));
            let mut words = vec![format!("{name} ({driver}) {}", of("operstate")), format!("MTU {} bytes", of("mtu"))];
            // -1 if the driver does not know it.
            words.extend(of("speed").parse::<u32>().ok().map(|speed| format!("{speed} Mbit/s")));
            out.push(good(DEVICES, words.join(", ")));
        }
    }

    /// What a provider lacks.
    fn network(&self, need: &Need, devices: &[Device]) -> Finding {
        let provider = need.provider;
        let found: Vec<String> = match need.class {
            Some(class) => self.names(&format!("sys/class/{class}")),
            None => {
                let fits = |device: &&Device| need.drivers.is_empty() || need.drivers.contains(&device.driver.as_str());
                devices.iter().filter(fits).map(|device| device.name.clone()).collect()
            }
        };
        let is_missing = |library: &&&str| !FOLDERS.iter().any(|folder| self.root.join(folder).join(library).exists());
        let libraries: Vec<&str> = need.libraries.iter().filter(is_missing).copied().collect();
        if found.is_empty() {
            let mut text = format!("{provider}: no device");
            if !need.drivers.is_empty() {
                text.push_str(&format!(" with driver {}", need.drivers.join(" or ")));
            }
            if !libraries.is_empty() {
                text.push_str(&format!("; not installed: {}", libraries.join(", ")));
            }
            return good(NETWORKS, text);
        }
        let mut lacks = Vec::new();
        let mut advice = Vec::new();
        if !libraries.is_empty() {
            lacks.push(format!("{} not found", libraries.join(", ")));
            advice.push(format!("install the packages with {}", libraries.join(", ")));
        }
        let (folder, begin) = need.nodes.rsplit_once('/').unwrap_or(("", need.nodes));
        if !self.names(&format!("dev/{folder}")).iter().any(|node| node.starts_with(begin)) {
            lacks.push(format!("no /dev/{}*", need.nodes));
            advice.push("load the driver's module for user space, and give a container its device files".to_owned());
        }
        if self.locked < ENOUGH_LOCKED {
            lacks.push(format!("only {} bytes of memory may be locked, and registration locks it", show(self.locked)));
            advice.push("ulimit -l unlimited (limits.conf: memlock)".to_owned());
        }
        let names = found.join(", ");
        if lacks.is_empty() {
            return good(NETWORKS, format!("{provider}: {names} can be used, if a provider is there (fi_info -l)"));
        }
        bad(NETWORKS, Grade::Notice, format!("{provider}: {names}: {}", lacks.join("; ")), advice.join("; "))
    }
}

/// A line for each port.
fn findings(device: &Device) -> Vec<Finding> {
    let Device { name, driver, firmware, ports } = device;
    let firmware = if firmware.is_empty() { "firmware unknown".to_owned() } else { format!("firmware {firmware}") };
    if ports.is_empty() {
        return vec![good(DEVICES, format!("{name} ({driver}), {firmware}, without ports"))];
    }
    let line = |port: &DevicePort| {
        let DevicePort { number, state, rate, link, interface, gids } = port;
        let mut words = vec![format!("{name} ({driver}) port {number} {state}"), rate.clone(), link.clone()];
        if let Some((interface, mtu)) = interface {
            words.push(format!("interface {interface} with MTU {mtu} bytes"));
        }
        words.push(if gids.is_empty() { "no GID".to_owned() } else { format!("GIDs {}", gids.join(" and ")) });
        words.push(firmware.clone());
        words.retain(|word| !word.is_empty());
        let text = words.join(", ");
        let advice = if state != "ACTIVE" {
            "the port carries no data: look at the cable, ip link set its interface up, or start a subnet manager"
        } else if link == "Ethernet" && gids.is_empty() {
            "RoCE needs an IP address on the interface"
        } else if link == "Ethernet" && !gids.iter().any(|kind| kind.contains("v2")) {
            "only RoCE v1, which routers do not pass: the device or its settings lack RoCE v2"
        } else {
            return good(DEVICES, text);
        };
        bad(DEVICES, Grade::Notice, text, advice)
    };
    ports.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    /// A root with files; a name with `->` is a link.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("->") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => write(path, content).unwrap(),
            }
        }
        root
    }

    fn examine(files: &[(&str, &str)], locked: u64) -> Vec<Finding> {
        let root = root(files);
        let mut out = Vec::new();
        Machine { root: root.path(), locked }.examine(&mut out);
        out
    }

    fn of<'a>(all: &'a [Finding], begin: &str) -> &'a Finding {
        all.iter().find(|finding| finding.text.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {all:#?}"))
    }

    const MLX5: &[(&str, &str)] = &[
        ("sys/class/infiniband/mlx5_0/fw_ver", "20.31.1014\n"),
        ("sys/class/infiniband/mlx5_0/device/driver", "->../../bus/pci/drivers/mlx5_core"),
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0202:03ff:fe04:0506\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "ens1\n"),
        ("sys/class/net/ens1/mtu", "9000\n"),
        ("sys/class/net/ens1/operstate", "up\n"),
        ("sys/class/net/ens1/speed", "100000\n"),
        ("sys/class/net/ens1/device/driver", "->../../bus/pci/drivers/mlx5_core"),
        ("sys/class/net/lo/mtu", "65536\n"),
        ("dev/infiniband/uverbs0", ""),
        ("usr/lib64/libibverbs.so.1", ""),
        ("usr/lib64/librdmacm.so.1", ""),
    ];

    #[test]
    fn a_whole_machine_has_a_line_for_each_device_and_network() {
        let all = examine(MLX5, u64::MAX);
        let text = "mlx5_0 (mlx5_core) port 1 ACTIVE, 100 Gb/sec (4X EDR), Ethernet, interface ens1 with MTU 9000 bytes, \
                    GIDs IB/RoCE v1 and RoCE v2, firmware 20.31.1014";
        assert_eq!(*of(&all, "mlx5_0"), good(DEVICES, text));
        assert_eq!(of(&all, "ens1").text, "ens1 (mlx5_core) up, MTU 9000 bytes, 100000 Mbit/s");
        assert_eq!(of(&all, "verbs").text, "verbs: mlx5_0 can be used, if a provider is there (fi_info -l)");
        assert!(of(&all, "psm3").text.contains("mlx5_0 can be used"));
        assert_eq!(of(&all, "efa").text, "efa: no device with driver efa; not installed: libefa.so.1");
        assert_eq!(of(&all, "opx").text, "opx: no device with driver hfi1");
        assert_eq!(of(&all, "cxi").text, "cxi: no device; not installed: libcxi.so.1");
        assert!(all.iter().all(|finding| finding.grade == Grade::Good), "{all:#?}");
    }

    #[test]
    fn what_is_missing_beside_a_device_is_named_with_advice() {
        let bare: Vec<_> = MLX5.iter().copied().filter(|(path, _)| path.starts_with("sys/class/infiniband")).collect();
        let all = examine(&bare, 65_536);
        let verbs = of(&all, "verbs");
        assert_eq!(verbs.grade, Grade::Notice);
        for part in ["libibverbs.so.1, librdmacm.so.1 not found", "no /dev/infiniband/uverbs*", "only 65536 bytes"] {
            assert!(verbs.text.contains(part), "{}", verbs.text);
        }
        assert!(verbs.advice.as_ref().is_some_and(|advice| advice.contains("ulimit -l unlimited")));
    }

    #[test]
    fn ports_that_carry_nothing_and_old_roce_are_noticed() {
        let with = |path: &'static str, content: &'static str| {
            let mut files = MLX5.to_vec();
            files.retain(|(known, _)| *known != path);
            files.push((path, content));
            of(&examine(&files, u64::MAX), "mlx5_0").clone()
        };
        let down = with("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        assert!(down.grade == Grade::Notice && down.advice.is_some_and(|advice| advice.contains("cable")));
        let old = with("sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "IB/RoCE v1\n");
        assert!(old.advice.is_some_and(|advice| advice.contains("only RoCE v1")));
        let none = "0000:0000:0000:0000:0000:0000:0000:0000";
        let mut files = MLX5.to_vec();
        files.iter_mut().filter(|(path, _)| path.contains("/gids/")).for_each(|(_, content)| *content = none);
        let without = of(&examine(&files, u64::MAX), "mlx5_0").clone();
        assert!(without.text.contains("no GID") && without.advice.is_some_and(|advice| advice.contains("IP address")));
    }

    #[test]
    fn each_network_has_its_own_devices() {
        let files = [
            ("sys/class/infiniband/efa_0/device/driver", "->../../bus/pci/drivers/efa"),
            ("sys/class/infiniband/hfi1_0/device/driver", "->../../bus/pci/drivers/hfi1"),
            ("sys/class/cxi/cxi0/device/vendor", "0x17db\n"),
            ("dev/infiniband/uverbs0", ""),
            ("dev/hfi1_0", ""),
            ("dev/cxi0", ""),
            ("usr/lib/libibverbs.so.1", ""),
            ("usr/lib/libefa.so.1", ""),
        ];
        let all = examine(&files, u64::MAX);
        assert!(of(&all, "efa: efa_0 can be used").grade == Grade::Good);
        assert!(of(&all, "opx: hfi1_0 can be used").grade == Grade::Good);
        assert_eq!(of(&all, "cxi: cxi0").text, "cxi: cxi0: libcxi.so.1 not found");
        assert_eq!(of(&all, "efa_0 (efa), firmware unknown, without ports").area, DEVICES);
        assert_eq!(of(&all, "psm3").grade, Grade::Good);
    }

    #[test]
    fn an_empty_machine_only_lacks() {
        let all = examine(&[], 0);
        assert_eq!(all.len(), NEEDS.len());
        assert!(all.iter().all(|finding| finding.grade == Grade::Good && finding.text.contains("no device")));
    }
}
