//! Takes the first results of many children and cancels the rest: `gather(first:of:)` of SE-0304.
//!
//! Written with a group, then with policies of the library, then with our own policy.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::ControlFlow;

use bowline::prelude::*;
use bowline::task::{AllResults, FirstSuccess, JoinPolicy, Quorum, TaskError};

#[derive(Debug, PartialEq, Eq)]
struct NoAnswer(&'static str);

/// Asks a server. Some answer, some fail, and some wait until they are cancelled.
async fn ask(server: &'static str) -> Result<&'static str, NoAnswer> {
    match server {
        "broken" => Err(NoAnswer(server)),
        "silent" => {
            let Ok(answer) = never::<_, Infallible>().await;
            Ok(answer)
        }
        _ => Ok(server),
    }
}

const SERVERS: [&str; 5] = ["broken", "oslo", "silent", "lima", "rome"];

/// Returns the first `m` answers, as the paper writes it.
async fn gather(m: usize, servers: &'static [&'static str]) -> Vec<&'static str> {
    assert!(m <= servers.len());
    task::group(async |group| {
        for server in servers {
            group.spawn(ask(server));
        }
        let mut answers = Vec::new();
        while answers.len() < m {
            match group.next().await {
                None => break,
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(NoAnswer(server))) => println!("no answer from {server}"),
            }
        }
        // A group awaits its children, and silent servers never answer. So cancel them.
        group.cancel_all();
        answers
    })
    .await
}

/// Counts votes until one answer has the majority.
struct Majority {
    votes: BTreeMap<&'static str, usize>,
    children: usize,
}

impl JoinPolicy<&'static str> for Majority {
    type Output = Option<&'static str>;

    fn begin(&mut self, children: usize) -> ControlFlow<()> {
        self.children = children;
        ControlFlow::Continue(())
    }

    fn ended(&mut self, _: usize, vote: Result<&'static str, TaskError>) -> ControlFlow<()> {
        let Ok(vote) = vote else {
            return ControlFlow::Continue(());
        };
        let votes = self.votes.entry(vote).or_default();
        *votes += 1;
        if *votes * 2 > self.children {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn finish(self) -> Self::Output {
        self.votes
            .into_iter()
            .find_map(|(vote, votes)| (votes * 2 > self.children).then_some(vote))
    }
}

#[bowline::main]
async fn main() {
    let answers = gather(2, &SERVERS).await;
    println!("the first two: {answers:?}");
    assert_eq!(answers.len(), 2);

    // The same with a policy: three children must succeed.
    let answers = task::gather(Quorum::of(3), SERVERS.map(ask)).await;
    let mut answers = answers.expect("three servers answer");
    answers.sort_unstable();
    println!("three of five: {answers:?}");
    assert_eq!(answers, ["lima", "oslo", "rome"]);

    // Where too many have failed, the others are cancelled at once.
    let outcome = task::gather(Quorum::of(2), ["silent", "broken"].map(ask)).await;
    let missed = outcome.expect_err("one of two is broken");
    println!("two of two: {missed}");
    assert_eq!(missed.needed, 2);

    // The first success, and the results of all.
    let answer = task::gather(FirstSuccess::new(), ["broken", "oslo", "silent"].map(ask)).await;
    assert_eq!(answer.expect("oslo answers"), "oslo");
    let all = task::gather(AllResults::new(), ["broken", "rome"].map(ask)).await;
    assert!(matches!(&all[..], [Ok(Err(NoAnswer("broken"))), Ok(Ok("rome"))]));

    // Our own policy.
    let votes = ["yes", "no", "yes", "yes"].map(|vote| async move { vote });
    let majority = Majority {
        votes: BTreeMap::new(),
        children: 0,
    };
    let decision = task::gather(majority, votes).await;
    println!("decided: {decision:?}");
    assert_eq!(decision, Some("yes"));
}
