//! Work that waits for tokio's channels, locks, timers, tasks and sockets.

use std::future::{Future, pending};
use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_lite::future::{block_on, poll_once};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::time::{Instant, Interval, interval_at, sleep, sleep_until, timeout};

use super::{FLOOD, HOUR, LOOPBACK, Lent, Made, Run, Scenario, assert_closed, drain, made, small_listener};

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "tokio::sync::mpsc",
        awaits: &[
            "recv on an empty channel",
            "send on a full one",
            "reserve on a full one",
        ],
        make: channel,
    },
    Scenario {
        name: "tokio::sync::oneshot",
        awaits: &["recv", "closed"],
        make: oneshot_channel,
    },
    Scenario {
        name: "tokio::sync::watch",
        awaits: &["changed", "wait_for"],
        make: watch_channel,
    },
    Scenario {
        name: "tokio::sync::broadcast",
        awaits: &["recv"],
        make: broadcast_channel,
    },
    Scenario {
        name: "tokio::sync::Notify",
        awaits: &["notified"],
        make: notify,
    },
    Scenario {
        name: "tokio::sync::Semaphore",
        awaits: &["acquire", "acquire_many with too few"],
        make: semaphore,
    },
    Scenario {
        name: "tokio::sync::Mutex",
        awaits: &["lock", "lock_owned while another lock is held"],
        make: mutex,
    },
    Scenario {
        name: "tokio::sync::RwLock",
        awaits: &["write while it is read", "read while it is written"],
        make: rw_lock,
    },
    Scenario {
        name: "tokio::time",
        awaits: &["sleep", "sleep_until", "tick", "timeout"],
        make: time,
    },
    Scenario {
        name: "tokio::task",
        awaits: &["JoinHandle"],
        make: join_handle,
    },
    Scenario {
        name: "tokio::net::TcpStream of a server",
        awaits: &["accept", "read_exact", "write_all into a full buffer"],
        make: server,
    },
    Scenario {
        name: "tokio::net::TcpStream of a client",
        awaits: &["connect", "read_to_end"],
        make: client,
    },
    Scenario {
        name: "tokio::net::UdpSocket",
        awaits: &["recv_from", "recv"],
        make: datagrams,
    },
];

fn channel(run: Run) -> Made {
    let (send, receive) = mpsc::channel::<u32>(1);
    let receive = Lent::new(receive);
    let (sender, lent) = (send.clone(), receive.clone());
    let work = async move {
        let mut receive = lent.borrow();
        let first = run.wait("recv on an empty channel", receive.recv(), |_| {
            sender.try_send(1).unwrap()
        });
        assert_eq!(first.await, Some(1));
        sender.try_send(2).unwrap();
        let send = run.wait("send on a full one", sender.send(3), |_| {
            assert_eq!(receive.try_recv(), Ok(2));
        });
        send.await.unwrap();
        assert_eq!(receive.try_recv(), Ok(3));
        sender.try_send(4).unwrap();
        let reserve = run.wait("reserve on a full one", sender.reserve(), |_| {
            assert_eq!(receive.try_recv(), Ok(4));
        });
        reserve.await.unwrap().send(5);
        assert_eq!(receive.try_recv(), Ok(5));
    };
    made(work, move |end| {
        let mut receive = receive.take();
        // The message that filled the channel is there, and that of the cancelled send is not.
        let queued = match end {
            Some("send on a full one") => Some(2),
            Some("reserve on a full one") => Some(4),
            _ => None,
        };
        assert_eq!(receive.try_recv().ok(), queued);
        assert_eq!(receive.try_recv(), Err(mpsc::error::TryRecvError::Empty));
        assert_eq!(send.capacity(), 1, "the capacity is back");
        send.try_send(6).unwrap();
        assert_eq!(receive.try_recv(), Ok(6), "a later message is not lost");
    })
}

fn oneshot_channel(run: Run) -> Made {
    let (send, receive) = oneshot::channel::<u32>();
    let (mut other_send, other_receive) = oneshot::channel::<u32>();
    let send = Lent::new(send);
    let lent = send.clone();
    let work = async move {
        let received = run.wait("recv", receive, |_| lent.take().send(1).unwrap());
        assert_eq!(received.await, Ok(1));
        run.wait("closed", other_send.closed(), |_| drop(other_receive)).await;
    };
    made(work, move |end| {
        if end == Some("recv") {
            let send = send.take();
            assert!(send.is_closed());
            assert_eq!(send.send(2), Err(2), "the value returns to its sender");
        }
    })
}

fn watch_channel(run: Run) -> Made {
    let (send, receive) = watch::channel(0);
    let (send, receive) = (Arc::new(send), Lent::new(receive));
    let (sender, lent) = (send.clone(), receive.clone());
    let work = async move {
        let mut receive = lent.borrow();
        let changed = run.wait("changed", receive.changed(), |_| sender.send(1).unwrap());
        changed.await.unwrap();
        let reached = run.wait("wait_for", receive.wait_for(|value| *value == 2), |_| {
            sender.send(2).unwrap();
        });
        assert_eq!(*reached.await.unwrap(), 2);
    };
    made(work, move |_| {
        let receive = receive.take();
        assert!(!receive.has_changed().unwrap());
        send.send(3).unwrap();
        assert!(receive.has_changed().unwrap(), "a later change is not lost");
        assert_eq!(send.receiver_count(), 1);
    })
}

fn broadcast_channel(run: Run) -> Made {
    let (send, receive) = broadcast::channel::<u32>(2);
    let receive = Lent::new(receive);
    let (sender, lent) = (send.clone(), receive.clone());
    let work = async move {
        let mut receive = lent.borrow();
        let received = run.wait("recv", receive.recv(), |_| assert_eq!(sender.send(1).unwrap(), 1));
        assert_eq!(received.await, Ok(1));
    };
    made(work, move |_| {
        let mut receive = receive.take();
        assert!(receive.is_empty());
        send.send(2).unwrap();
        assert_eq!(receive.try_recv(), Ok(2), "a later message is not lost");
    })
}

fn notify(run: Run) -> Made {
    let notify = Arc::new(Notify::new());
    let inside = notify.clone();
    let work = async move {
        run.wait("notified", inside.notified(), |_| inside.notify_one()).await;
    };
    made(work, move |_| {
        notify.notify_one();
        assert!(
            is_ready(notify.notified()),
            "no waiter that was dropped takes a later call"
        );
    })
}

fn semaphore(run: Run) -> Made {
    let (one, two) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(2)));
    let held = Lent::new(one.clone().try_acquire_owned().unwrap());
    let other = Lent::new(two.clone().try_acquire_owned().unwrap());
    let (first, second) = (one.clone(), two.clone());
    let (held_inside, other_inside) = (held.clone(), other.clone());
    let work = async move {
        let acquired = run.wait("acquire", first.acquire(), |_| drop(held_inside.take()));
        let _permit = acquired.await.unwrap();
        let all = run.wait("acquire_many with too few", second.acquire_many(2), |_| {
            drop(other_inside.take());
        });
        assert_eq!(all.await.unwrap().num_permits(), 2);
    };
    made(work, move |_| {
        drop((held.try_take(), other.try_take()));
        assert_eq!((one.available_permits(), two.available_permits()), (1, 2));
        assert!(one.try_acquire().is_ok() && two.try_acquire_many(2).is_ok());
    })
}

fn mutex(run: Run) -> Made {
    let (one, two) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let held = Lent::new(one.clone().try_lock_owned().unwrap());
    let other = Lent::new(two.clone().try_lock_owned().unwrap());
    let (first, second) = (one.clone(), two.clone());
    let (held_inside, other_inside) = (held.clone(), other.clone());
    let work = async move {
        let locked = run.wait("lock", first.lock(), |_| drop(held_inside.take()));
        let mut locked = locked.await;
        *locked += 1;
        let both = run.wait("lock_owned while another lock is held", second.lock_owned(), |_| {
            drop(other_inside.take());
        });
        *both.await += 1;
    };
    made(work, move |end| {
        if end == Some("lock_owned while another lock is held") {
            assert_eq!(*one.try_lock().unwrap(), 1, "the lock that was held is free");
        }
        drop((held.try_take(), other.try_take()));
        assert!(one.try_lock().is_ok() && two.try_lock().is_ok());
    })
}

fn rw_lock(run: Run) -> Made {
    let (one, two) = (Arc::new(RwLock::new(0)), Arc::new(RwLock::new(0)));
    let reader = Lent::new(one.clone().try_read_owned().unwrap());
    let writer = Lent::new(two.clone().try_write_owned().unwrap());
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
            assert!(one.try_read().is_ok());
        }
        drop((reader.try_take(), writer.try_take()));
        assert!(one.try_write().is_ok() && two.try_write().is_ok());
    })
}

/// The next tick of an interval.
struct Tick(Interval);

impl Future for Tick {
    type Output = Instant;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Instant> {
        self.0.poll_tick(cx)
    }
}

fn time(run: Run) -> Made {
    let work = async move {
        let at_once = |sleep: Pin<&mut tokio::time::Sleep>| sleep.reset(Instant::now());
        run.wait("sleep", sleep(HOUR), at_once).await;
        run.wait("sleep_until", sleep_until(Instant::now() + HOUR), at_once)
            .await;
        let ticks = Tick(interval_at(Instant::now() + HOUR, HOUR));
        run.wait("tick", ticks, |mut tick| tick.0.reset_immediately()).await;
        let (send, receive) = oneshot::channel();
        let in_time = run.wait("timeout", timeout(HOUR, receive), |_| send.send(7).unwrap());
        assert_eq!(in_time.await.unwrap(), Ok(7));
    };
    made(work, |_| {})
}

fn join_handle(run: Run) -> Made {
    let ended = Arc::new(Notify::new());
    let count = ended.clone();
    let work = async move {
        let ends = count.clone();
        let spawned = tokio::spawn(async move {
            ends.notified().await;
            7
        });
        let joined = run.wait("JoinHandle", spawned, |_| count.notify_one());
        assert_eq!(joined.await.unwrap(), 7);
    };
    // The task of the runtime is not the library's: it outlives the await, and ends here.
    made(work, move |_| ended.notify_one())
}

fn server(run: Run) -> Made {
    let (peer, listener, runtime) = (Lent::empty(), Lent::empty(), Lent::empty());
    let (far, bound, here) = (peer.clone(), listener.clone(), runtime.clone());
    let work = async move {
        bound.put(tokio::net::TcpListener::bind(LOOPBACK).await.unwrap());
        here.put(Handle::current());
        let listener = bound.borrow();
        let address = listener.local_addr().unwrap();
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
        let (listener, runtime) = (listener.take(), runtime.take());
        let _context = runtime.enter();
        let _later = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(block_on(listener.accept()).is_ok(), "a later connection is not lost");
    })
}

fn client(run: Run) -> Made {
    let listener = Arc::new(small_listener());
    let address = listener.local_addr().unwrap();
    let accepts = listener.clone();
    let work = async move {
        let connected = run.wait_again("connect", || tokio::net::TcpStream::connect(address));
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
        bound.put(tokio::net::UdpSocket::bind(LOOPBACK).await.unwrap());
        let socket = bound.borrow();
        let address = socket.local_addr().unwrap();
        let mut text = [0; 8];
        let received = run.wait("recv_from", socket.recv_from(&mut text), |_| send(address));
        let (length, _) = received.await.unwrap();
        assert_eq!(&text[..length], b"knot");
        let received = run.wait("recv", socket.recv(&mut text), |_| send(address));
        assert_eq!(received.await.unwrap(), 4);
    };
    made(work, move |_| {
        let socket = socket.take();
        send(socket.local_addr().unwrap());
        let received = block_on(socket.recv(&mut [0; 8]));
        assert_eq!(received.unwrap(), 4, "a later datagram is not lost");
    })
}

/// Returns whether a future is ready at its first poll.
fn is_ready(future: impl Future) -> bool {
    block_on(poll_once(future)).is_some()
}

/// Work whose await does not suspend: an error of the test.
pub const READY: Scenario = Scenario {
    name: "an await that is ready",
    awaits: &["notified"],
    make: |run| {
        let work = async move {
            let notify = Notify::new();
            notify.notify_one();
            run.wait("notified", notify.notified(), |_| {}).await;
        };
        made(work, |_| {})
    },
};

/// Work that does not come to its await: another error.
pub const UNKNOWN: Scenario = Scenario {
    name: "an await that never comes",
    awaits: &["notified"],
    make: |run| {
        let work = async move {
            if false {
                run.wait("notified", pending::<()>(), |_| {}).await;
            }
        };
        made(work, |_| {})
    },
};
