//! A service in a tokio runtime: a task for each connection, a deadline, and a clean end.
//!
//! `service` prints its address and upper-cases what clients send; `service ADDRESS TEXT` asks it;
//! `service ADDRESS stop` ends it.

use ofi::{Domain, EndpointType, Errno, Error, Fabric, Info, MsgEndpoint, MsgListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The longest request.
const SIZE: usize = 1024;

fn open() -> Result<(Info, Fabric, Domain), Error> {
    let info = Info::builder().endpoint(EndpointType::MSG).query()?.remove(0);
    let fabric = Fabric::open(&info)?;
    let domain = fabric.domain(&info)?;
    Ok((info, fabric, domain))
}

/// Answers the requests of one client until it goes.
async fn answer(client: MsgEndpoint, stop: Arc<Notify>) -> Result<(), Error> {
    let mut requests = client.incoming(4, SIZE);
    while let Some(Ok(request)) = requests.next().await {
        if &*request == b"stop" {
            stop.notify_one();
        }
        client.send(request.to_ascii_uppercase()).await.0?;
        requests.recycle(request);
    }
    Ok(())
}

async fn serve() -> Result<(), Error> {
    let (info, fabric, domain) = open()?;
    let listener = MsgListener::listen(&fabric, &info)?;
    println!("{}", listener.local_addr()?);
    let (stop, mut clients) = (Arc::new(Notify::new()), tokio::task::JoinSet::new());
    loop {
        tokio::select! {
            request = listener.request() => {
                let (request, domain, stop) = (request?, domain.clone(), stop.clone());
                clients.spawn(async move { answer(request.accept(&domain).await?, stop).await });
            }
            Some(_ended) = clients.join_next() => {}
            () = stop.notified() => break,
        }
    }
    // The others may finish what they are at.
    let rest = async { while clients.join_next().await.is_some() {} };
    let _in_time = tokio::time::timeout(Duration::from_secs(2), rest).await;
    Ok(())
}

async fn ask(server: &str, text: String) -> Result<(), Error> {
    let (info, _fabric, domain) = open()?;
    let server = server.parse().map_err(|()| Error::new(Errno::EINVAL, "read the service's address"))?;
    let service = MsgEndpoint::connect(&domain, &info, server).await?;
    let answer = service.receive(vec![0; SIZE]).timeout(Duration::from_secs(5));
    service.send(text).await.0?;
    let (received, buf) = answer.await;
    println!("{}", String::from_utf8_lossy(&buf[..received?.len()]));
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(server), text) => ask(&server, text.unwrap_or_default()).await,
        (None, _) => serve().await,
    }
}
