//! The demonstration: the service as its own client.

use std::io;
use std::net::SocketAddr;

use bowline::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ledger::Ledger;

/// Is a client that is served, one that leaves, one that meets the deadline, and one that is to meet the end of the service. That is returned.
pub(crate) async fn run(address: SocketAddr, ledger: &Ledger) -> Option<TcpStream> {
    print("a short one", request(address, "ada bob 5").await.ok()?).await;
    drop(begin(address, ledger).await.ok()?);
    print("a long one", request(address, "ada moon 5").await.ok()?).await;
    begin(address, ledger).await.ok()
}

/// Prints the answer that a client gets.
pub(crate) async fn print(name: &str, mut client: TcpStream) {
    let mut response = String::new();
    match client.read_to_string(&mut response).await {
        Ok(_) => println!(
            "{name}: {}",
            response.rsplit("\r\n").next().unwrap_or_default().trim_end()
        ),
        Err(error) => println!("{name}: {error}"),
    }
}

/// Sends a request for a long transfer, and waits until its transaction has begun. Sends another one if the deadline was earlier.
async fn begin(address: SocketAddr, ledger: &Ledger) -> io::Result<TcpStream> {
    let before = ledger.begun();
    loop {
        let (client, mut answer) = (request(address, "ada moon 5").await?, [0]);
        let begun = async {
            while ledger.begun() == before {
                task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = begun => return Ok(client),
            answered = client.peek(&mut answer) => {
                answered?;
            }
        }
    }
}

/// Sends a request for a transfer.
async fn request(address: SocketAddr, order: &str) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect(address).await?;
    let length = order.len();
    let request = format!(
        "POST /transfers HTTP/1.1\r\nhost: demo\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{order}"
    );
    client.write_all(request.as_bytes()).await?;
    Ok(client)
}
