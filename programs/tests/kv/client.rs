//! What a client library sees.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Commands, Connection, ExistenceCheck, SetExpiry, SetOptions};

use crate::common::PATIENCE;
use crate::server::Kind;

crate::for_each_server! {
    commands,
    options_of_set,
    expiry,
    pipelines,
    many_clients_share_the_keys,
    errors_leave_the_connection_open,
    values_of_any_bytes,
}

fn commands(kind: Kind) {
    let mut server = kind.start(&[]);
    let mut client = server.client();
    assert_eq!(redis::cmd("PING").query(&mut client), Ok("PONG".to_owned()));
    assert_eq!(redis::cmd("ECHO").arg("knot").query(&mut client), Ok("knot".to_owned()));
    assert_eq!(client.get("a"), Ok(None::<String>));
    assert_eq!(client.set("a", "1"), Ok(()));
    assert_eq!(client.get("a"), Ok("1".to_owned()));
    assert_eq!(client.incr("a", 1), Ok(2));
    assert_eq!(client.incr("b", 5), Ok(5));
    assert_eq!(client.mset(&[("c", "3"), ("d", "4")]), Ok(()));
    assert_eq!(client.mget(&["a", "x", "d"]), Ok([Some(2), None, Some(4)]));
    assert_eq!(client.exists(&["a", "b", "x"]), Ok(2));
    assert_eq!(client.del(&["a", "x"]), Ok(1));
    assert_eq!(redis::cmd("DBSIZE").query(&mut client), Ok(3));
    assert_eq!(redis::cmd("FLUSHALL").query(&mut client), Ok(()));
    assert_eq!(redis::cmd("DBSIZE").query(&mut client), Ok(0));
    assert_eq!(redis::cmd("QUIT").query(&mut client), Ok(()));
    assert_eq!(server.end("INT"), 0);
}

fn options_of_set(kind: Kind) {
    let server = kind.start(&[]);
    let mut client = server.client();
    let mut set = |value: u32, options: SetOptions| {
        client
            .set_options("a", value, options)
            .map(|set: Option<String>| set.is_some())
    };
    let new = SetOptions::default().conditional_set(ExistenceCheck::NX);
    let old = SetOptions::default().conditional_set(ExistenceCheck::XX);
    assert_eq!(set(1, old.clone()), Ok(false));
    assert_eq!(set(2, new.clone()), Ok(true));
    assert_eq!(set(3, new), Ok(false));
    assert_eq!(set(4, old.with_expiration(SetExpiry::EX(100))), Ok(true));
    let left: i64 = client.ttl("a").unwrap();
    assert!((90..=100).contains(&left), "{left}");
    assert_eq!(client.get("a"), Ok(4));
}

fn expiry(kind: Kind) {
    let server = kind.start(&[]);
    let mut client = server.client();
    let () = client.set("stays", 1).unwrap();
    let () = client
        .set_options("goes", 1, SetOptions::default().with_expiration(SetExpiry::PX(50)))
        .unwrap();
    let () = client.set("goes too", 1).unwrap();
    assert_eq!(client.pexpire("goes too", 50), Ok(1));
    assert_eq!(client.expire("nothing", 1), Ok(0));
    let begin = Instant::now();
    while redis::cmd("DBSIZE").query(&mut client) != Ok(1) {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.get("goes"), Ok(None::<u32>));
    assert_eq!(client.ttl("goes"), Ok(-2));
    assert_eq!(client.ttl("stays"), Ok(-1));
}

fn pipelines(kind: Kind) {
    let mut server = kind.start(&[]);
    let mut client = server.client();
    let mut pipe = redis::pipe();
    let value = "x".repeat(1000);
    for number in 0..1000 {
        pipe.set(number, &value).ignore().get(number).incr("count", 1);
    }
    let answers: Vec<(String, u32)> = pairs(pipe.query(&mut client).unwrap());
    assert_eq!(answers.len(), 1000);
    for (index, (got, count)) in answers.iter().enumerate() {
        assert_eq!((got, *count as usize), (&value, index + 1));
    }
    assert_eq!(server.end("TERM"), 1001);
}

fn pairs(answers: Vec<redis::Value>) -> Vec<(String, u32)> {
    let pairs = answers
        .chunks(2)
        .map(|pair| redis::from_redis_value(redis::Value::Array(pair.to_vec())));
    pairs.collect::<Result<_, _>>().expect("strings and numbers")
}

fn many_clients_share_the_keys(kind: Kind) {
    let mut server = kind.start(&[]);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = server.client();
                for _ in 0..100 {
                    let _: u32 = client.incr("count", 1).unwrap();
                }
            });
        }
    });
    assert_eq!(server.client().get("count"), Ok(1600));
    assert_eq!(server.end("INT"), 1);
}

fn errors_leave_the_connection_open(kind: Kind) {
    let server = kind.start(&[]);
    let mut client = server.client();
    let mut error = |name: &str, words: &[&str]| {
        let answer = redis::cmd(name).arg(words).query::<()>(&mut client);
        answer.expect_err("it is refused").to_string()
    };
    assert!(error("FLY", &[]).contains("unknown command 'FLY'"));
    assert!(error("GET", &["a", "b"]).contains("wrong number of arguments for 'get' command"));
    assert!(error("INCRBY", &["a", "b"]).contains("not an integer"));
    assert!(error("SET", &["a", "b", "c"]).contains("syntax error"));
    assert!(ping(&mut client));
}

fn ping(client: &mut Connection) -> bool {
    redis::cmd("PING").query(client) == Ok("PONG".to_owned())
}

fn values_of_any_bytes(kind: Kind) {
    let server = kind.start(&[]);
    let mut client = server.client();
    let key: Vec<u8> = (0..=255).collect();
    let value = key.repeat(2000);
    let () = client.set(&key, &value).unwrap();
    assert_eq!(client.get(&key), Ok(value));
}
