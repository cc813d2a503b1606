-- What was served and what came of it: renders with a bullet left out by lot, outcomes that a comparison confirms, and
-- the effect of a bullet as one view.

alter table playbooks add column holdout double precision default 0 not null
    constraint playbooks_holdout_check check (holdout between 0 and 1);

alter table servings add column candidate text;

alter table servings add column held_out boolean default false not null;

alter table bullet_evaluations add column confirmed boolean default false not null;

create index traces_render_idx on traces (tenant_id, render_id) where render_id is not null;

-- The share of successes among n runs, and its 95 % interval after Wilson (1927); all null where n is 0.
create function wilson(n bigint, won bigint, out rate float8, out low float8, out high float8)
language sql immutable parallel safe as $$
    select p, (p + z * z / (2 * m) - h) / (1 + z * z / m), (p + z * z / (2 * m) + h) / (1 + z * z / m)
    from (select nullif(n, 0)::float8 m, won / nullif(n, 0)::float8 p, 1.959963984540054::float8 z) a
    cross join lateral (select z * sqrt(p * (1 - p) / m + z * z / (4 * m * m)) h) b
$$;

-- Of each bullet: how many runs succeeded with it and without it.
--   randomised     each render draws one bullet, and a coin decides whether it is left out; only runs that drew this
--                  bullet are compared, so the two sides differ in nothing else
--   observational  runs it was served to, against all others of the playbook since the bullet is there; the two sides
--                  may differ in what they were about
-- A run counts once per render, as success or not (failure, error, timeout); partial and unknown outcomes do not count.
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
    where s.kind = 'render'
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
