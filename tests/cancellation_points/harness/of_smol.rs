//! Work that waits for smol's channels, locks, timers and sockets.

use std::future::Future;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_io::{Async, Timer};
use async_lock::{Barrier, Mutex, OnceCell, RwLock, Semaphore};
use futures_lite::future::block_on;
use futures_lite::{AsyncReadExt as _, AsyncWriteExt as _, Stream as _};

use super::{FLOOD, HOUR, LOOPBACK, Lent, Made, Run, Scenario, assert_closed, drain, made, small_listener};

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "async_channel",
        awaits: &["recv on an empty channel", "send on a full one"],
        make: channel,
    },
    Scenario {
        name: "async_lock::Mutex",
        awaits: &["lock", "lock_arc while another lock is held"],
        make: mutex,
    },
    Scenario {
        name: "async_lock::RwLock",
        awaits: &["write while it is read", "read while it is written"],
        make: rw_lock,
    },
    Scenario {
        name: "async_lock::Semaphore",
        awaits: &["acquire"],
        make: semaphore,
    },
    Scenario {
        name: "async_lock::OnceCell and Barrier",
        awaits: &["OnceCell::wait", "Barrier::wait"],
        make: once_cell_and_barrier,
    },
    Scenario {
        name: "async_io::Timer",
        awaits: &["after", "at", "interval"],
        make: timer,
    },
    Scenario {
        name: "async_io::Async of a server",
        awaits: &["accept", "read_exact", "write_all into a full buffer"],
        make: server,
    },
    Scenario {
        name: "async_io::Async of a client",
        awaits: &["connect", "read_to_end"],
        make: client,
    },
    Scenario {
        name: "async_io::Async of datagrams",
        awaits: &["recv_from", "recv"],
        make: datagrams,
    },
];

fn channel(run: Run) -> Made {
    let (send, receive) = async_channel::bounded::<u32>(1);
    let (sender, receiver) = (send.clone(), receive.clone());
    let work = async move {
        let first = run.wait("recv on an empty channel", receiver.recv(), |_| {
            sender.try_send(1).unwrap()
        });
        assert_eq!(first.await, Ok(1));
        sender.try_send(2).unwrap();
        let send = run.wait("send on a full one", sender.send(3), |_| {
            assert_eq!(receiver.try_recv(), Ok(2))
        });
        send.await.unwrap();
        assert_eq!(receiver.try_recv(), Ok(3));
    };
    made(work, move |end| {
        // The message that filled the channel is there, and that of the cancelled send is not.
        let queued = (end == Some("send on a full one")).then_some(2);
        assert_eq!(receive.try_recv().ok(), queued);
        assert!(receive.is_empty());
        send.try_send(4).expect("the capacity is back");
        assert_eq!(receive.try_recv(), Ok(4), "a later message is not lost");
        assert_eq!((send.sender_count(), send.receiver_count()), (1, 1));
    })
}

fn mutex(run: Run) -> Made {
    let (one, two) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let held = Lent::new(one.try_lock_arc().unwrap());
    let other = Lent::new(two.try_lock_arc().unwrap());
    let (first, second) = (one.clone(), two.clone());
    let (held_inside, other_inside) = (held.clone(), other.clone());
    let work = async move {
        let locked = run.wait("lock", first.lock(), |_| drop(held_inside.take()));
        let mut locked = locked.await;
        *locked += 1;
        let both = run.wait("lock_arc while another lock is held", second.lock_arc(), |_| {
            drop(other_inside.take());
        });
        *both.await += 1;
    };
    made(work, move |end| {
        if end == Some("lock_arc while another lock is held") {
            assert_eq!(*one.try_lock().unwrap(), 1, "the lock that was held is free");
        }
        drop((held.try_take(), other.try_take()));
        assert!(one.try_lock().is_some() && two.try_lock().is_some());
    })
}

fn rw_lock(run: Run) -> Made {
    let (one, two) = (Arc::new(RwLock::new(0)), Arc::new(RwLock::new(0)));
    let reader = Lent::new(one.try_read_arc().unwrap());
    let writer = Lent::new(two.try_write_arc().unwrap());
    let (first, second) = (one.clone(), two.clone());
    let (reader_inside, writer_inside) = (reader.clone(), writer.clone());
    let work = async move {
        let write = run.wait("write while it is read", first.write(), |_| drop(reader_inside.take()));
        *write.await += 1;
        let read = run.wait("read while it is written", second.read(), |_| {
            drop(writer_inside.take())
        });
        assert_eq!(*read.await, 0);
    };
    made(work, move |end| {
        if end == Some("write while it is read") {
            // A writer that waits keeps readers out; one that was dropped does not.
            assert!(one.try_read().is_some());
        }
        drop((reader.try_take(), writer.try_take()));
        assert!(one.try_write().is_some() && two.try_write().is_some());
    })
}

fn semaphore(run: Run) -> Made {
    let semaphore = Arc::new(Semaphore::new(1));
    let held = Lent::new(semaphore.try_acquire_arc().unwrap());
    let (inside, held_inside) = (semaphore.clone(), held.clone());
    let work = async move {
        let acquired = run.wait("acquire", inside.acquire(), |_| drop(held_inside.take()));
        drop(acquired.await);
    };
    made(work, move |_| {
        drop(held.try_take());
        assert!(semaphore.try_acquire().is_some());
    })
}

fn once_cell_and_barrier(run: Run) -> Made {
    let cell = Arc::new(OnceCell::new());
    let inside = cell.clone();
    let work = async move {
        let set = run.wait("OnceCell::wait", inside.wait(), |_| _ = inside.set_blocking(7));
        assert_eq!(*set.await, 7);
        let barrier = Arc::new(Barrier::new(2));
        let other = barrier.clone();
        let met = run.wait("Barrier::wait", barrier.wait(), |_| {
            drop(std::thread::spawn(move || _ = other.wait_blocking()));
        });
        met.await;
    };
    made(work, move |end| {
        let is_set = cell.set_blocking(8).is_err();
        assert_eq!(is_set, end != Some("OnceCell::wait"));
    })
}

/// The next tick of an interval.
struct Tick(Timer);

impl Future for Tick {
    type Output = Option<Instant>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

fn timer(run: Run) -> Made {
    let work = async move {
        let at_once = |timer: Pin<&mut Timer>| timer.get_mut().set_after(Duration::ZERO);
        run.wait("after", Timer::after(HOUR), at_once).await;
        run.wait("at", Timer::at(Instant::now() + HOUR), at_once).await;
        let ticks = run.wait("interval", Tick(Timer::interval(HOUR)), |mut tick| {
            tick.0.set_interval_at(Instant::now(), HOUR);
        });
        assert!(ticks.await.is_some());
    };
    made(work, |_| {})
}

fn server(run: Run) -> Made {
    let (peer, listener) = (Lent::empty(), Lent::empty());
    let (far, bound) = (peer.clone(), listener.clone());
    let work = async move {
        bound.put(Async::<TcpListener>::bind(LOOPBACK).unwrap());
        let listener = bound.borrow();
        let address = listener.get_ref().local_addr().unwrap();
        let accepted = run.wait("accept", listener.accept(), |_| {
            far.put(TcpStream::connect(address).unwrap());
        });
        let (mut socket, _) = accepted.await.unwrap();
        let mut text = [0; 4];
        let read = run.wait("read_exact", socket.read_exact(&mut text), |_| {
            far.borrow().write_all(b"knot").unwrap();
        });
        read.await.unwrap();
        assert_eq!(&text, b"knot");
        let flood = vec![0; FLOOD];
        let written = run.wait("write_all into a full buffer", socket.write_all(&flood), |_| {
            drain(far.borrow().try_clone().unwrap());
        });
        written.await.unwrap();
    };
    made(work, move |end| {
        match peer.try_take() {
            None => assert_eq!(end, Some("accept")),
            Some(peer) => assert_closed(peer),
        }
        let listener = listener.take();
        let _later = TcpStream::connect(listener.get_ref().local_addr().unwrap()).unwrap();
        assert!(block_on(listener.accept()).is_ok(), "a later connection is not lost");
    })
}

fn client(run: Run) -> Made {
    let listener = Arc::new(small_listener());
    let address = listener.local_addr().unwrap();
    let accepts = listener.clone();
    let work = async move {
        let connected = run.wait_again("connect", || Async::<TcpStream>::connect(address));
        let mut socket = connected.await.unwrap();
        let mut text = Vec::new();
        let read = run.wait("read_to_end", socket.read_to_end(&mut text), |_| {
            accepts.accept().unwrap().0.write_all(b"knot").unwrap();
        });
        read.await.unwrap();
        assert_eq!(text, b"knot");
    };
    made(work, move |end| {
        if end.is_some() {
            assert_closed(listener.accept().unwrap().0);
        }
    })
}

fn datagrams(run: Run) -> Made {
    let socket = Lent::empty();
    let bound = socket.clone();
    let send = |address| {
        let peer = UdpSocket::bind(LOOPBACK).unwrap();
        peer.send_to(b"knot", address).unwrap();
    };
    let work = async move {
        bound.put(Async::<UdpSocket>::bind(LOOPBACK).unwrap());
        let socket = bound.borrow();
        let address = socket.get_ref().local_addr().unwrap();
        let mut text = [0; 8];
        let received = run.wait("recv_from", socket.recv_from(&mut text), |_| send(address));
        let (length, _) = received.await.unwrap();
        assert_eq!(&text[..length], b"knot");
        let received = run.wait("recv", socket.recv(&mut text), |_| send(address));
        assert_eq!(received.await.unwrap(), 4);
    };
    made(work, move |_| {
        let socket = socket.take();
        send(socket.get_ref().local_addr().unwrap());
        let received = block_on(socket.recv(&mut [0; 8]));
        assert_eq!(received.unwrap(), 4, "a later datagram is not lost");
    })
}
