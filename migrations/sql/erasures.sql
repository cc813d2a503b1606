-- Retention per project, and erasure with tombstones.

-- How many days the data of a project is stored. '' in project_id: all projects without a row. Null: without limit.
create table retention_policies (
    tenant_id uuid not null,
    project_id text not null,
    event_days integer,
    trace_days integer,
    retrieval_days integer,
    llm_call_days integer,
    updated_at timestamptz default now() not null,
    constraint retention_policies_pkey primary key (tenant_id, project_id),
    constraint retention_policies_days_check check (least(event_days, trace_days, retrieval_days, llm_call_days) >= 1)
);

-- What was erased, without its content. The subject of a person is stored as a hash.
create table tombstones (
    tenant_id uuid not null,
    target_kind text not null,
    target_id text not null,
    erasure_id uuid,
    reason text,
    actor text,
    erased_at timestamptz default now() not null,
    constraint tombstones_pkey primary key (tenant_id, target_kind, target_id)
);

-- Requests for an erasure and their results.
create table erasures (
    tenant_id uuid not null,
    id uuid not null,
    target_kind text not null,
    target_id text not null,
    state text default 'queued' not null,
    reason text,
    actor text,
    run_id uuid,
    counts jsonb default '{}' not null,
    affected_bullets jsonb default '[]' not null,
    created_at timestamptz default now() not null,
    finished_at timestamptz,
    constraint erasures_pkey primary key (tenant_id, id),
    constraint erasures_target_kind_check check (target_kind in ('memory', 'trace', 'person', 'tenant')),
    constraint erasures_state_check check (state in ('queued', 'done'))
);

create index erasures_created_at_idx on erasures (tenant_id, created_at desc, id desc);

-- The service cannot change history. These two functions, with the owner's rights, are the only way, and only for the tenant that the
-- transaction is bound to. The first removes the texts of memories from their history; a bullet disappears from earlier versions.
create function hansei_erase_history(p_tenant_id uuid, p_memory_ids uuid[]) returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_count bigint;
begin
    if p_tenant_id is distinct from nullif(current_setting('hansei.tenant_id', true), '')::uuid then
        raise exception 'the transaction is bound to another tenant' using errcode = 'insufficient_privilege';
    end if;
    update public.memory_revisions r
    set content = '', title = null, when_to_use = null, section = null, keywords = '{}', tags = '{}', change_reason = null
    where r.tenant_id = p_tenant_id and r.memory_id = any(p_memory_ids);
    get diagnostics v_count = row_count;
    update public.bullet_spans s
    set content = '', searchable_text = '', title = null, when_to_use = null, section = null, keywords = '{}', tags = '{}', status = 'deleted'
    where s.tenant_id = p_tenant_id and s.bullet_id = any(p_memory_ids);
    return v_count;
end $$;

-- The second deletes a batch of all rows of the tenant in one table; `tenants` removes its name. Returns the number of rows.
create function hansei_erase_rows(p_tenant_id uuid, p_table text, p_limit integer) returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    v_count bigint;
    v_key text;
begin
    if p_tenant_id is distinct from nullif(current_setting('hansei.tenant_id', true), '')::uuid then
        raise exception 'the transaction is bound to another tenant' using errcode = 'insufficient_privilege';
    end if;
    if p_table = 'tenants' then
        update public.tenants t set status = 'erased', slug = t.id::text where t.id = p_tenant_id;
        get diagnostics v_count = row_count;
        return v_count;
    end if;
    if p_table in ('tombstones', 'erasures', 'audit_log', 'runs') then
        raise exception 'rows of % are not erased', p_table using errcode = 'insufficient_privilege';
    end if;
    select string_agg(quote_ident(a.attname), ', ' order by a.attnum) into strict v_key
    from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey[:i.indnkeyatts - 1])
    where i.indrelid = format('public.%I', p_table)::regclass and i.indisprimary;
    execute format('delete from public.%1$I where tenant_id = $1 and (%2$s) in (select %2$s from public.%1$I where tenant_id = $1 limit $2)',
                   p_table, v_key)
    using p_tenant_id, p_limit;
    get diagnostics v_count = row_count;
    return v_count;
end $$;

revoke execute on function hansei_erase_history, hansei_erase_rows from public;

grant execute on function hansei_erase_history, hansei_erase_rows to hansei_app, hansei_worker;
