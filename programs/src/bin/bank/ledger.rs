//! The database: accounts, and transactions that can be rolled back.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline::prelude::*;

/// The money of each account at first.
const MONEY: u64 = 1000;
/// How long a statement takes.
const STATEMENT: Duration = Duration::from_millis(1);
/// How long it takes if it is about the account `moon`.
const FAR_STATEMENT: Duration = Duration::from_secs(3600);

/// The accounts. A transaction that is not committed yet is visible in them.
pub(crate) struct Ledger {
    accounts: Mutex<HashMap<&'static str, u64>>,
    begun: AtomicUsize,
    committed: AtomicUsize,
    rolled_back: AtomicUsize,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            accounts: Mutex::new(["ada", "bob", "moon"].map(|name| (name, MONEY)).into()),
            begun: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            rolled_back: AtomicUsize::new(0),
        }
    }
}

impl Ledger {
    fn accounts(&self) -> MutexGuard<'_, HashMap<&'static str, u64>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the money of an account.
    pub(crate) fn money(&self, name: &str) -> Option<u64> {
        self.accounts().get(name).copied()
    }

    /// Returns the number of transactions that have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Relaxed)
    }

    /// Begins a transaction.
    pub(crate) fn begin(self: &Arc<Self>) -> Transaction {
        self.begun.fetch_add(1, Relaxed);
        Transaction {
            ledger: self.clone(),
            before: Mutex::default(),
        }
    }
}

/// A summary of all transactions.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |counter: &AtomicUsize| counter.load(Relaxed);
        let (begun, committed, rolled_back) = (count(&self.begun), count(&self.committed), count(&self.rolled_back));
        let money: u64 = self.accounts().values().sum();
        write!(
            f,
            "{begun} transfers: {committed} committed, {rolled_back} rolled back; {money} in all accounts"
        )
    }
}

/// A transaction: some statements, and then a commit or a roll-back.
pub(crate) struct Transaction {
    ledger: Arc<Ledger>,
    /// What it has added to accounts and taken from them.
    before: Mutex<Vec<(&'static str, i64)>>,
}

impl Transaction {
    /// Executes a statement: adds money to an account, or takes some. Returns whether there is enough.
    pub(crate) async fn change(&self, name: &str, by: i64) -> bool {
        sleep(if name == "moon" { FAR_STATEMENT } else { STATEMENT }).await;
        let mut accounts = self.ledger.accounts();
        let Some((name, money)) = accounts.iter_mut().find(|(known, _)| **known == name) else {
            return false;
        };
        let Some(left) = money.checked_add_signed(by) else {
            return false;
        };
        *money = left;
        self.changes().push((name, by));
        true
    }

    /// Keeps the changes.
    pub(crate) async fn commit(&self) {
        sleep(STATEMENT).await;
        self.changes().clear();
        self.ledger.committed.fetch_add(1, Relaxed);
    }

    /// Takes the changes back.
    pub(crate) async fn roll_back(&self) {
        sleep(STATEMENT).await;
        let mut accounts = self.ledger.accounts();
        for (name, by) in self.changes().drain(..).rev() {
            if let Some(money) = accounts.get_mut(name) {
                *money = money.saturating_add_signed(-by);
            }
        }
        self.ledger.rolled_back.fetch_add(1, Relaxed);
    }

    fn changes(&self) -> MutexGuard<'_, Vec<(&'static str, i64)>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the database, which is another machine in a real service.
async fn sleep(duration: Duration) {
    task::sleep(duration).await;
}
