//! The door of an environment is not kept beyond the borrow of the environment.
use bowline::sender::EnvDoor;
use bowline::{EmptyEnv, Env, Query};
use std::any::{Any, TypeId};

#[derive(Clone)]
struct Stale<'a, E>(&'a E);

impl<'a, E: Env> Env for Stale<'a, E> {
    type StopToken = <EmptyEnv as Env>::StopToken;
    type Scheduler = <EmptyEnv as Env>::Scheduler;

    fn stop_token(&self) -> Self::StopToken {
        EmptyEnv.stop_token()
    }

    fn scheduler(&self) -> Self::Scheduler {
        EmptyEnv.scheduler()
    }

    fn visit(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) {}

    // Of a value that is dropped at the end of the call.
    fn door(&self) -> EnvDoor<'_> {
        let inside = self.0.clone();
        inside.door()
    }
}

struct Keep;

impl Query for Keep {
    type Answer = EnvDoor<'static>;

    fn ask<E: Env>(self, env: &E) -> EnvDoor<'static> {
        env.door()
    }
}

fn main() {
    let _ = Keep;
}
