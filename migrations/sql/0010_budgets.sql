-- What a tenant may spend on models in a day or a month (UTC).
create table budgets (
    tenant_id uuid not null,
    period text not null,
    usd numeric not null,
    allow_unknown_price boolean default false not null,
    updated_at timestamptz default now() not null,
    constraint budgets_pkey primary key (tenant_id, period),
    constraint budgets_period_check check (period in ('day', 'month')),
    constraint budgets_usd_check check (usd >= 0)
);

-- What a call may cost, set aside before it is made; what it did cost, once it is settled. usd is null while nobody knows the price.
create table budget_reservations (
    tenant_id uuid not null,
    id uuid not null,
    run_id uuid,
    provider text not null,
    model text not null,
    purpose text not null,
    usd numeric,
    created_at timestamptz default now() not null,
    expires_at timestamptz not null,
    settled_at timestamptz,
    constraint budget_reservations_pkey primary key (tenant_id, id)
);

create index budget_reservations_spent_idx on budget_reservations (tenant_id, created_at) include (usd, expires_at, settled_at);
