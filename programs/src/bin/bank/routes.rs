//! The requests: what they do, and the answers to those that cannot be served.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bowline::prelude::*;
use bowline_tower::{Failure, Requests};

use crate::Options;
use crate::ledger::{Ledger, Transaction};

/// A response with a line of text, also as an error.
type Line = (StatusCode, String);

/// The state that all requests share.
#[derive(Clone)]
struct Bank {
    ledger: Arc<Ledger>,
    max_body: usize,
    read_timeout: Duration,
}

/// Makes the service. Each of its requests is a task of the scope.
pub(crate) fn router(options: &Options, ledger: Arc<Ledger>, requests: &Requests) -> Router {
    let layer = requests
        .layer()
        .timeout(options.timeout)
        .name_requests(|request: &Request| format!("{} {}", request.method(), request.uri().path()))
        .answer_failures(failure);
    Router::new()
        .route("/accounts/{name}", get(account))
        .route("/transfers", post(transfer))
        .layer(layer)
        .with_state(Bank {
            ledger,
            max_body: options.max_body,
            read_timeout: options.read_timeout,
        })
}

fn line(status: StatusCode, text: impl Into<String>) -> Line {
    (status, text.into() + "\n")
}

/// The answer to a request whose task has no response.
fn failure(failure: Failure) -> Response {
    let status = match failure {
        Failure::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Failure::Closed | Failure::Cancelled(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    line(status, failure.to_string()).into_response()
}

/// `GET /accounts/NAME`: the money of an account.
async fn account(State(bank): State<Bank>, Path(name): Path<String>) -> Line {
    match bank.ledger.money(&name) {
        Some(money) => line(StatusCode::OK, money.to_string()),
        None => line(StatusCode::NOT_FOUND, "no such account"),
    }
}

/// `POST /transfers` with a body such as `ada bob 5`: moves money from one account to another.
async fn transfer(State(bank): State<Bank>, body: Body) -> Result<Line, Line> {
    let body = read(body, &bank).await?;
    let order = Order::parse(&body).ok_or_else(|| line(StatusCode::BAD_REQUEST, "expected FROM TO AMOUNT"))?;
    if [&order.from, &order.to]
        .iter()
        .any(|name| bank.ledger.money(name).is_none())
    {
        return Err(line(StatusCode::NOT_FOUND, "no such account"));
    }
    let transaction = Arc::new(bank.ledger.begin());
    let statements = transaction.clone();
    // A cancellation stops a task at its `.await`. Here something must follow: so the work is a task inside this one, whose stop is a value.
    let work = Task::new(async move { order.execute(&statements).await });
    let Ok(outcome) = work.stopped_as_option().await;
    match outcome {
        Some(true) => Ok(line(StatusCode::OK, "transferred")),
        Some(false) => {
            task::shield(transaction.roll_back()).await;
            Err(line(StatusCode::CONFLICT, "not enough money"))
        }
        None => {
            task::shield(transaction.roll_back()).await;
            let reason = task::cancellation_reason().map_or_else(String::new, |reason| format!(": {reason}"));
            Err(line(StatusCode::SERVICE_UNAVAILABLE, format!("rolled back{reason}")))
        }
    }
}

/// Reads a body that is small and arrives in time.
async fn read(body: Body, bank: &Bank) -> Result<Bytes, Line> {
    let too_large = || {
        line(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("more than {} bytes", bank.max_body),
        )
    };
    // A length that the client announces is enough to refuse it.
    if body.size_hint().lower() > bank.max_body as u64 {
        return Err(too_large());
    }
    match task::with_timeout(bank.read_timeout, to_bytes(body, bank.max_body)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_limit(&error) => Err(too_large()),
        // The client has left in the middle of it, or it is not HTTP.
        Ok(Err(error)) => Err(line(StatusCode::BAD_REQUEST, error.to_string())),
        Err(DeadlineExceeded) => Err(line(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

fn is_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>())
}

/// The order to move money.
struct Order {
    from: String,
    to: String,
    amount: i64,
}

impl Order {
    fn parse(body: &[u8]) -> Option<Self> {
        let words: Vec<_> = str::from_utf8(body).ok()?.split_whitespace().collect();
        let [from, to, amount] = words[..] else { return None };
        let amount = amount.parse().ok().filter(|amount| *amount > 0)?;
        Some(Order {
            from: from.to_owned(),
            to: to.to_owned(),
            amount,
        })
    }

    /// Executes the statements of the transaction. Returns whether there was enough money.
    async fn execute(&self, transaction: &Transaction) -> bool {
        let is_done =
            transaction.change(&self.from, -self.amount).await && transaction.change(&self.to, self.amount).await;
        if is_done {
            // A commit that was sent is awaited: it cannot be taken back.
            task::shield(transaction.commit()).await;
        }
        is_done
    }
}
