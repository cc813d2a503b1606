-- The history of memories. The service cannot bypass it: one trigger numbers a change before it is written, another stores the
-- result after it. Verdict counters, use counts and vectors do not change the text of a memory, so they create no revision.

-- A change of a bullet must change its playbook version.
create function memory_revise() returns trigger language plpgsql as $$
begin
    if old.playbook_version is not null and new.playbook_version is not distinct from old.playbook_version then
        raise exception 'a bullet of a playbook is changed through its playbook' using errcode = 'restrict_violation';
    end if;
    new.revision := old.revision + 1;
    new.updated_at := now();
    return new;
end $$;

create trigger memory_revise before update on memories for each row
when ((old.content, old.when_to_use, old.title, old.section, old.status, old.tags, old.importance, old.key, old.pinned, old.keywords)
      is distinct from
      (new.content, new.when_to_use, new.title, new.section, new.status, new.tags, new.importance, new.key, new.pinned, new.keywords))
execute function memory_revise();

-- Runs with the owner's rights, because the service roles cannot insert into the two history tables.
create function memory_keep() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if old.revision is distinct from new.revision then
        insert into public.memory_revisions (tenant_id, memory_id, revision, playbook_version, scope_id, key, section, title, when_to_use, content,
                                             keywords, tags, importance, status, pinned, change_reason, change_actor, change_run_id)
        values (new.tenant_id, new.id, new.revision, new.playbook_version, new.scope_id, new.key, new.section, new.title, new.when_to_use, new.content,
                new.keywords, new.tags, new.importance, new.status, new.pinned, new.change_reason, new.change_actor, new.change_run_id);
    end if;
    if old.playbook_version < new.playbook_version then
        insert into public.bullet_spans (tenant_id, bullet_id, from_version, until_version, scope_id, section, title, when_to_use, content,
                                         searchable_text, keywords, tags, status, pinned, awaiting_confirmation)
        values (old.tenant_id, old.id, old.playbook_version, new.playbook_version, old.scope_id, old.section, old.title, old.when_to_use, old.content,
                nullif(old.searchable_text, concat_ws(E'\n', nullif(old.when_to_use, ''), nullif(old.title, ''), nullif(old.content, ''),
                                                      nullif(array_to_string(old.keywords, ' '), ''))),
                old.keywords, old.tags, old.status, old.pinned, old.awaiting_confirmation);
    end if;
    return null;
end $$;

create trigger memory_keep_insert after insert on memories for each row execute function memory_keep();

create trigger memory_keep_update after update on memories for each row
when (old.revision is distinct from new.revision or old.playbook_version is distinct from new.playbook_version) execute function memory_keep();

-- What each revision did. The service does not write this column: the trigger compares a revision with the one before it.
create function memory_revision_type() returns trigger language plpgsql as $$
declare
    before text;
begin
    select r.status into before from public.memory_revisions r
    where r.tenant_id = new.tenant_id and r.memory_id = new.memory_id and r.revision < new.revision
    order by r.revision desc limit 1;
    new.change_type := case
        when before is null or before = new.status then 'changed'
        when new.status <> 'active' then new.status
        when before = 'quarantined' then 'released'
        else 'restored' end;
    return new;
end $$;

create trigger memory_revision_type before insert on memory_revisions for each row
when (new.revision > 1) execute function memory_revision_type();
