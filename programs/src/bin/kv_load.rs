//! A load for the server `kv`, for machines without `redis-benchmark`: clients that send requests and wait for the answers.
//!
//! It runs on one thread, as `redis-benchmark` does, and is written with tokio alone, so that it is the same for every server.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bowline_programs::arguments::{self, ArgumentError, Arguments};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const HELP: &str = "\
Usage: kv_load [options]

Sends requests to a server that speaks the protocol of Redis. Prints how many it
has answered per second, and how long half of them (p50) and nearly all of them
(p99) have taken, in microseconds.

  --addr ADDRESS         the address of the server [127.0.0.1:6379]
  --clients N            the number of connections [50]
  --requests N           the number of requests of all clients together [100000]
  --pipeline N           requests that a client sends before it waits [1]
  --command NAME         set, get or ping [set]
  --size BYTES           the length of a value [3]
  --help                 print this
";

struct Options {
    address: SocketAddr,
    clients: usize,
    requests: usize,
    pipeline: usize,
    command: Command,
    size: usize,
}

#[derive(Clone, Copy)]
enum Command {
    Set,
    Get,
    Ping,
}

impl std::str::FromStr for Command {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "set" => Ok(Command::Set),
            "get" => Ok(Command::Get),
            "ping" => Ok(Command::Ping),
            _ => Err("not one of set, get and ping"),
        }
    }
}

fn read(arguments: &mut Arguments) -> Result<Options, ArgumentError> {
    Ok(Options {
        address: arguments.value_or("--addr", SocketAddr::from(([127, 0, 0, 1], 6379)))?,
        clients: arguments.count_or("--clients", 50)?,
        requests: arguments.count_or("--requests", 100_000)?,
        pipeline: arguments.count_or("--pipeline", 1)?,
        command: arguments.value_or("--command", Command::Set)?,
        size: arguments.value_or("--size", 3)?,
    })
}

fn main() -> ExitCode {
    let options = match arguments::read(HELP, read) {
        Ok(options) => options,
        Err(exit_code) => return exit_code,
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv_load: {}: {error}", options.address);
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut times, elapsed) = runtime.block_on(load(options))?;
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    let requests = times.len() * options.pipeline;
    let per_second = requests as f64 / elapsed.as_secs_f64();
    println!(
        "{requests} requests, {per_second:.0} per second, p50 {:.1} us, p99 {:.1} us",
        at(50),
        at(99)
    );
    Ok(())
}

/// Returns the time of each round of requests, and that of all together.
async fn load(options: &Options) -> Result<(Vec<Duration>, Duration), Box<dyn Error>> {
    // The connections are made before the clock starts.
    let mut sockets = Vec::new();
    for _ in 0..options.clients {
        let socket = TcpStream::connect(options.address).await?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let rounds = options.requests.div_ceil(options.clients * options.pipeline);
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    for (number, socket) in sockets.into_iter().enumerate() {
        let (command, size, pipeline) = (options.command, options.size, options.pipeline);
        clients.spawn(client(number, socket, rounds, pipeline, command, size));
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    Ok((times, begin.elapsed()))
}

async fn client(
    number: usize,
    mut socket: TcpStream,
    rounds: usize,
    pipeline: usize,
    command: Command,
    size: usize,
) -> io::Result<Vec<Duration>> {
    let key = format!("key:{number:012}");
    let value = "x".repeat(size);
    let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${size}\r\n{value}\r\n", key.len());
    let (request, answer) = match command {
        Command::Set => (set, "+OK\r\n".to_owned()),
        Command::Get => {
            socket.write_all(set.as_bytes()).await?;
            expect(&mut socket, b"+OK\r\n").await?;
            let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
            (request, format!("${size}\r\n{value}\r\n"))
        }
        Command::Ping => ("*1\r\n$4\r\nPING\r\n".to_owned(), "+PONG\r\n".to_owned()),
    };
    let (requests, answers) = (request.repeat(pipeline), answer.repeat(pipeline));
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = Instant::now();
        socket.write_all(requests.as_bytes()).await?;
        expect(&mut socket, answers.as_bytes()).await?;
        times.push(begin.elapsed());
    }
    Ok(times)
}

async fn expect(socket: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut bytes = vec![0; answer.len()];
    socket.read_exact(&mut bytes).await?;
    match bytes == answer {
        true => Ok(()),
        false => Err(io::Error::other(format!("unexpected answer {}", bytes.escape_ascii()))),
    }
}
