//! A key-value store whose clients read and change it without the server's program. `kv FILE`
//! serves a file, `kv FILE ADDRESS` again after a restart; `kv set ADDRESS` reads lines `KEY
//! VALUE`.
use ofi::{Addr, AtomicOp, EndpointType, Errno, Error, Fabric, Info, MrAccess, Peer, RdmEndpoint, RemoteKey};
const SLOTS: usize = 512; // each a key and its value, 8 bytes; key 0 is a free slot

async fn serve(file: &str, at: Option<Addr>) -> Result<(), Error> {
    let mut info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    info.src_addr = at.or(info.src_addr);
    let domain = Fabric::open(&info)?.domain(&info)?;
    let ep = RdmEndpoint::open(&domain, &info)?;
    println!("{}", ep.local_addr()?);
    let mut table = std::fs::read(file).unwrap_or_default();
    table.resize(16 * SLOTS, 0);
    let region = domain.register(table.clone(), MrAccess::REMOTE)?;
    let mut requests = ep.incoming(16, 64);
    loop {
        let request = String::from_utf8_lossy(&requests.next().await?).into_owned();
        if request == "stop" {
            region.read(0, &mut table)?;
            return std::fs::write(file, table).map_err(|error| Error::os(error, "write the file"));
        } else if let Ok(client) = request.parse() {
            let _client_may_be_gone = ep.send(ep.peer(client)?, region.remote_key().to_bytes()).await;
        }
    }
}

async fn set(ep: &RdmEndpoint, server: Peer, key: u64, value: u64) -> Result<u64, Error> {
    let answer = ep.receive([0; RemoteKey::BYTES]).timeout(std::time::Duration::from_secs(1));
    ep.send(server, ep.local_addr()?.to_string()).await.0?;
    let (answered, bytes) = answer.await;
    let table = RemoteKey::from_bytes(&bytes[..answered?.len()]).ok_or(Errno::EPROTO)?;
    for slot in (0..SLOTS as u64).map(|step| table.at(key.wrapping_add(step) % SLOTS as u64 * 16)) {
        let owner = ep.compare_swap(server, slot, 0, key).await?;
        if owner == 0 || owner == key {
            let old = ep.fetch(server, slot.at(8), AtomicOp::Read, 0).await?;
            let found = ep.compare_swap(server, slot.at(8), old, value).await?;
            return if found == old { Ok(old) } else { Err(Errno::AGAIN.into()) };
        }
    }
    Err(Errno::ENOSPC.into())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let addr = arguments.get(2).and_then(|text| text.parse::<Addr>().ok());
    if arguments[1] != "set" {
        return ofi::block_on(serve(&arguments[1], addr));
    }
    let info = Info::builder().endpoint(EndpointType::RDM).query()?.remove(0);
    let ep = RdmEndpoint::open(&Fabric::open(&info)?.domain(&info)?, &info)?;
    let server = ep.peer(addr.ok_or(Errno::EINVAL)?)?;
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let [key, value] = [0, 1].map(|at| line.split(' ').nth(at).and_then(|text| text.parse().ok()).unwrap_or(1));
        while let Err(error) = ofi::block_on(set(&ep, server, key, value)).map(|old| println!("{old}")) {
            eprintln!("again, because {error}");
        }
    }
    ofi::block_on(ep.send(server, "stop")).0.map_or_else(|error| Err(error.into()), |_sent| Ok(()))
}
