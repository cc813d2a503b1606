-- A release from quarantine that holds until somebody votes against the bullet again, and outcomes with and without a bullet
-- that know of searches and of runs to which nothing was handed out.

alter table memories add column forgiven integer default 0 not null;

drop view bullet_effects;

-- Of each bullet: how many runs succeeded with it and without it.
--   randomised     each render draws one bullet, and a coin decides whether it is left out; only runs that drew this
--                  bullet are compared, so the two sides differ in nothing else
--   observational  runs that had it (a render or a search handed it out; of a run without either, it was named or judged),
--                  against all others of the playbook since the bullet is there; the two sides may differ in what they
--                  were about. Runs without a serving count from the oldest serving on that is still kept, so that both
--                  sides are of the same time
-- A run counts once per serving, as success or not (failure, error, timeout); partial and unknown outcomes do not count.
-- low and high: 95 % interval of the difference, Newcombe's hybrid of two Wilson intervals (1998, method 10).
create view bullet_effects with (security_invoker = true) as
with run as not materialized (
    select s.tenant_id, s.scope, s.created_at, s.keys, s.candidate, s.held_out, p.aliases,
           (t.outcome = 'success')::int won
    from servings s
    join playbooks p on p.tenant_id = s.tenant_id and p.scope = s.scope
    cross join lateral (
        select r.outcome from traces r
        where r.tenant_id = s.tenant_id and r.render_id = s.render_id
          and r.outcome in ('success', 'failure', 'error', 'timeout')
        order by r.created_at, r.id
        limit 1
    ) t
    union all
    select p.tenant_id, p.scope, t.created_at, t.used_keys || j.keys, null, false, p.aliases,
           (t.outcome = 'success')::int
    from playbooks p
    join traces t on t.tenant_id = p.tenant_id and t.project_id = p.project_id and t.playbook = p.name
    cross join lateral (
        select coalesce(array_agg(m.key), '{}') keys
        from bullet_evaluations e
        join memories m on m.tenant_id = e.tenant_id and m.id = e.bullet_id and m.scope = p.scope
        where e.tenant_id = t.tenant_id and e.trace_id = t.id
    ) j
    where t.render_id is null and t.outcome in ('success', 'failure', 'error', 'timeout')
      and t.created_at >= (select min(s.created_at) from servings s where s.tenant_id = p.tenant_id and s.scope = p.scope)
), used as (
    select r.tenant_id, r.scope, u.key, count(*) n, sum(r.won) won
    from run r
    cross join lateral (select distinct coalesce(r.aliases ->> k.key, k.key) from unnest(r.keys) k(key)) u(key)
    group by r.tenant_id, r.scope, u.key
), moment as (
    select tenant_id, scope, created_at, null::text as key, 1 n, won from run
    union all
    select m.tenant_id, m.scope, m.created_at, m.key, 0, 0
    from memories m
    where m.kind = 'bullet' and m.key is not null and m.status <> 'deleted'
), since as (
    select tenant_id, scope, key, sum(n) over later n, sum(won) over later won
    from moment
    window later as (partition by tenant_id, scope order by created_at desc range unbounded preceding)
), side as (
    select s.tenant_id, s.scope, s.key, 'observational' basis, u.n with_n, u.won with_won,
           greatest(s.n - u.n, 0) without_n, least(greatest(s.won - u.won, 0), greatest(s.n - u.n, 0)) without_won
    from since s
    join used u on u.tenant_id = s.tenant_id and u.scope = s.scope and u.key = s.key
    union all
    select r.tenant_id, r.scope, coalesce(r.aliases ->> r.candidate, r.candidate), 'randomised',
           count(*) filter (where not r.held_out), coalesce(sum(r.won) filter (where not r.held_out), 0),
           count(*) filter (where r.held_out), coalesce(sum(r.won) filter (where r.held_out), 0)
    from run r
    where r.candidate is not null
    group by 1, 2, 3
)
select s.tenant_id, s.scope, s.key, s.basis, s.with_n, s.with_won, s.without_n, s.without_won,
       a.rate with_rate, b.rate without_rate, a.rate - b.rate difference,
       a.rate - b.rate - sqrt((a.rate - a.low) ^ 2 + (b.high - b.rate) ^ 2) low,
       a.rate - b.rate + sqrt((a.high - a.rate) ^ 2 + (b.rate - b.low) ^ 2) high
from side s
cross join lateral wilson(s.with_n, s.with_won) a
cross join lateral wilson(s.without_n, s.without_won) b;
