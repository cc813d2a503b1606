-- Records what one search or render handed out, in one round trip without a transaction around it. Like hansei_search, it binds the
-- tenant itself and never switches to another one. It is a function and not a statement, because set_config in a statement stays on
-- the coordinator of a distributed database, while a function that is distributed by p_tenant_id runs on the node of its tenant.
create function hansei_insert_retrieval(
    p_tenant_id uuid, p_id uuid, p_scope_id int, p_version int, p_kind text, p_query text, p_bullet_keys text[], p_scores real[],
    p_holdout_candidate text, p_held_out boolean, p_advice_held_out boolean
) returns void language plpgsql volatile as $$
declare
    v_bound_tenant text := current_setting('hansei.tenant_id', true);
begin
    if coalesce(v_bound_tenant, '') = '' then
        perform set_config('hansei.tenant_id', p_tenant_id::text, true);
        -- The row is visible to every process when the call returns. Waiting for the disk would take longer than the call. If a crash
        -- of the server loses the row, the signature of its ID tells that it existed (playbooks/retrieval/log.py).
        perform set_config('synchronous_commit', 'off', true);
    elsif v_bound_tenant::uuid <> p_tenant_id then
        raise exception 'this transaction is bound to another tenant' using errcode = 'insufficient_privilege';
    end if;
    insert into retrievals
        (tenant_id, id, scope_id, version, kind, query, bullet_keys, scores, holdout_candidate, held_out, advice_held_out)
    values
        (p_tenant_id, p_id, p_scope_id, p_version, p_kind, p_query, p_bullet_keys, p_scores, p_holdout_candidate, p_held_out,
         p_advice_held_out);
end $$;

revoke execute on function hansei_insert_retrieval from public;
grant execute on function hansei_insert_retrieval to hansei_app, hansei_worker, current_user;

-- The secret with which the retrieval IDs of a tenant are signed. Created when the tenant first retrieves.
create table retrieval_secrets (
    tenant_id uuid not null,
    secret bytea not null,
    created_at timestamptz default now() not null,
    constraint retrieval_secrets_pkey primary key (tenant_id)
);
