//! Handles that accept and return their parameter, or choose an implementation by it, are invariant in it. Each of these
//! coercions, down and up, is refused.
use bowline::adaptors::{BoxedSender, EnsureStarted, Split};
use bowline::factories::Just;
use bowline::stop::{InplaceStopToken, StopCallback, StopSlot};
use bowline::task::{
    AsyncLet, Continuation, Gather, GroupFuture, Handle, Scope, SenderFuture, SpawnWhenReady, SpawnWhenReadyWith, Task,
    TaskBuilder, TaskGroup, TrySpawnWhenReady, TrySpawnWhenReadyWith,
};
use bowline::{Prepared, WaitSlot};
use std::convert::Infallible;

type Wide = for<'a> fn(&'a str);
type Narrow = fn(&'static str);

macro_rules! invariant {
    ($($down:ident $up:ident: $wide:ty, $narrow:ty;)+) => {
        $(
            fn $down(value: $wide) -> $narrow {
                value
            }
            fn $up(value: $narrow) -> $wide {
                value
            }
        )+
    };
}

invariant! {
    group_down group_up: TaskGroup<Wide>, TaskGroup<Narrow>;
    group_future_down group_future_up: GroupFuture<(), (), Wide, (), ()>, GroupFuture<(), (), Narrow, (), ()>;
    gather_down gather_up: Gather<(), (), Wide>, Gather<(), (), Narrow>;
    spawning_down spawning_up: SpawnWhenReady<Wide>, SpawnWhenReady<Narrow>;
    try_spawning_down try_spawning_up: TrySpawnWhenReady<Wide>, TrySpawnWhenReady<Narrow>;
    spawning_with_down spawning_with_up: SpawnWhenReadyWith<Wide, ()>, SpawnWhenReadyWith<Narrow, ()>;
    try_spawning_with_down try_spawning_with_up: TrySpawnWhenReadyWith<Wide, ()>, TrySpawnWhenReadyWith<Narrow, ()>;
    handle_down handle_up: Handle<Wide>, Handle<Narrow>;
    async_let_down async_let_up: AsyncLet<Wide>, AsyncLet<Narrow>;
    continuation_down continuation_up: Continuation<Wide>, Continuation<Narrow>;
    continuation_error_down continuation_error_up: Continuation<(), Wide>, Continuation<(), Narrow>;
    task_context_down task_context_up: Task<(), Infallible, Wide>, Task<(), Infallible, Narrow>;
    builder_down builder_up: TaskBuilder<Wide, ()>, TaskBuilder<Narrow, ()>;
    boxed_down boxed_up: BoxedSender<'static, Wide, ()>, BoxedSender<'static, Narrow, ()>;
    split_down split_up: Split<Just<Wide>>, Split<Just<Narrow>>;
    ensure_started_down ensure_started_up: EnsureStarted<Just<Wide>>, EnsureStarted<Just<Narrow>>;
    sender_future_down sender_future_up: SenderFuture<Wide, ()>, SenderFuture<Narrow, ()>;
    slot_down slot_up: WaitSlot<Wide, ()>, WaitSlot<Narrow, ()>;
    prepared_down prepared_up: Prepared<'static, Just<Wide>>, Prepared<'static, Just<Narrow>>;
}

fn scope_shortened<'r, 'short, 'long: 'short>(scope: &'r Scope<'long>) -> &'r Scope<'short> {
    scope
}

fn scope_lengthened<'r, 'short, 'long: 'short>(scope: &'r Scope<'short>) -> &'r Scope<'long> {
    scope
}

fn prepared_shortened<'short, 'long: 'short>(prepared: Prepared<'long, Just<u8>>) -> Prepared<'short, Just<u8>> {
    prepared
}

fn stop_slot_lengthened<'short, 'long: 'short>(
    slot: StopSlot<InplaceStopToken<'short>>,
) -> StopSlot<InplaceStopToken<'long>> {
    slot
}

fn callback_lengthened<'short, 'long: 'short>(
    callback: StopCallback<InplaceStopToken<'short>, fn()>,
) -> StopCallback<InplaceStopToken<'long>, fn()> {
    callback
}

fn token_lengthened<'short, 'long: 'short>(token: InplaceStopToken<'short>) -> InplaceStopToken<'long> {
    token
}

fn main() {}
